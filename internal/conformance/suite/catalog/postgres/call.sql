-- A call of a function.
SELECT * FROM {procedure}({arguments})
