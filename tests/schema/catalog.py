"""Everything that a migration can make, as lines of text."""

from tests.schema.rows import Connection, column

QUERIES = {
    "column": """
        SELECT format('%s.%s %s not null=%s default=%s identity=%s storage=%s', c.relname, a.attname,
                      format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
                      a.attidentity, a.attstorage)
          FROM pg_attribute a
          JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped""",
    "relation": """
        SELECT format('%s %s %s %s %s', c.relname, c.relkind, c.reloptions, c.relacl,
                      obj_description(c.oid, 'pg_class'))
          FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace""",
    "constraint": """
        SELECT format('%s %s %s', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid))
          FROM pg_constraint c WHERE c.connamespace = 'outbox'::regnamespace""",
    "index": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'outbox'",
    "trigger": """
        SELECT format('%s %s', pg_get_triggerdef(t.oid), t.tgenabled)
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'outbox'::regnamespace""",
    "function": """
        SELECT pg_get_functiondef(p.oid) || ' ' || p.proacl::text FROM pg_proc p
         WHERE p.pronamespace = 'outbox'::regnamespace""",
    "sequence": "SELECT to_jsonb(s) - 'last_value' #>> '{}' FROM pg_sequences s WHERE s.schemaname = 'outbox'",
    "column grant": """
        SELECT format('%s.%s %s', a.attrelid::regclass, a.attname, a.attacl)
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'outbox'::regnamespace AND a.attacl IS NOT NULL""",
    "schema": "SELECT nspname || nspacl::text FROM pg_namespace WHERE nspname = 'outbox'",
    "migration": "SELECT format('%s %s %s', version, name, checksum) FROM outbox.migration",
}


async def catalog(connection: Connection) -> dict[str, list[str]]:
    """What the schema `outbox` holds, sorted, for each kind of thing."""
    return {kind: sorted(await column(connection, query)) for kind, query in QUERIES.items()}
