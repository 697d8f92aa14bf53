-- A call of a procedure.
EXEC {procedure} {arguments}
