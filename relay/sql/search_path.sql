-- For this transaction every name of ours is written with its schema, whatever the role's search_path is.
SELECT set_config('search_path', 'pg_catalog', true)
