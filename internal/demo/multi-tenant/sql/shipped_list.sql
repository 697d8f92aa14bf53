-- What was shipped for a tenant.
SELECT name FROM shipped WHERE tenant = ?
