-- Keeps a value unless a newer one is there: key; version, value, milliseconds to live. A reader that was slow writes what it
-- read before a change that is already cached.
local known = tonumber(redis.call('HGET', KEYS[1], 'version'))
if known and known > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'value', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
