UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 2;
