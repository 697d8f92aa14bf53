UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {status} = 1);
