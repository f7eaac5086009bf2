-- The database's time, from which the ages that an operator names are counted back.
--
-- locks   none.
-- index   none.
SELECT now()
