-- What a test looks at of each message, in the order of publishing.
SELECT {uuid}, {status}, {retry_count}, COALESCE({last_error}, '') FROM {all} ORDER BY {seq}
