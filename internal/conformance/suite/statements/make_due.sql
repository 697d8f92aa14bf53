UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {status} = 0;
