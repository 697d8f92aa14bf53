UPDATE {outbox} SET {created_at} = {past};
