-- Takes a token from a bucket: key; tokens a second, tokens at most. Returns whether there was one, and else in how many
-- milliseconds there will be. One script, so that a crash leaves no key without an expiry. By the clock of Redis.
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local known = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(known[1]) or burst, tonumber(known[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate / 1000)
local ok = 0
if tokens >= 1 then
  tokens, ok = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', string.format('%.3f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000))
return { ok, math.ceil((1 - tokens) / rate * 1000) }
