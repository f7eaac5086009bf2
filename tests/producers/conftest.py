"""A shop: a user that has `outbox_producer` and its own table, and two destinations that subscribe."""

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relay.demo.postgres import Postgres

SHOP = b"""
CREATE ROLE shop LOGIN IN ROLE outbox_producer;
ALTER DATABASE shop SET search_path = shop;
CREATE SCHEMA shop AUTHORIZATION shop;
INSERT INTO outbox.destination (name, topics) VALUES ('billing', '{order.*}'), ('search', '{order.*}');
INSERT INTO outbox.destination (name, topics) VALUES ('mail', '{customer.*}');

-- The rule of order, asserted at each INSERT: this transaction has written or locked the row of the entity. A row
-- that it deleted cannot be seen any more.
CREATE FUNCTION public.assert_locked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.topic <> 'order.deleted' AND NOT EXISTS (
        SELECT FROM shop.orders o
         WHERE 'order-' || o.id = NEW.entity_key
           AND (pg_xact_status(o.xmin::text::xid8) = 'in progress'
                OR o.xmax <> '0' AND pg_xact_status(o.xmax::text::xid8) = 'in progress')
    ) THEN
        RAISE EXCEPTION '% is not locked by the transaction that inserts its job', NEW.entity_key;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER aa_assert_locked BEFORE INSERT ON outbox.job FOR EACH ROW EXECUTE FUNCTION public.assert_locked();

-- Everything has been done when COMMIT fails.
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'order 13 is refused at COMMIT'; END $$;
GRANT USAGE ON SCHEMA public TO shop;
SET ROLE shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, status text NOT NULL);
CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON shop.orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.id = 13) EXECUTE FUNCTION public.refuse();
RESET ROLE;
"""


EMPTY = b"""
TRUNCATE outbox.job, shop.orders RESTART IDENTITY;
INSERT INTO shop.orders VALUES (13, 'new'), (42, 'new');
ALTER TABLE outbox.job ENABLE TRIGGER aa_assert_locked;
DROP FUNCTION IF EXISTS shop.announce_order CASCADE;
"""


@pytest.fixture(scope="session")
def _shop(postgres: Postgres, template: str) -> str:
    dsn = postgres.create_database("shop", template=template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SHOP)
    return dsn


@pytest.fixture
def shop_owner(_shop: str) -> str:
    """The DSN of the superuser in the database of `shop`."""
    with psycopg.connect(_shop, autocommit=True) as connection:
        connection.execute(EMPTY)
    return _shop


@pytest.fixture
def shop(shop_owner: str) -> str:
    """The DSN of the user `shop`: two new orders, no jobs."""
    return make_conninfo(shop_owner, user="shop")
