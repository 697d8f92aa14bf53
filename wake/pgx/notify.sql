-- One round trip for any number of topics.
SELECT pg_notify($1, t.topic) FROM json_array_elements_text($2::json) AS t(topic);
