"""The application of docker-compose.yml: an order a second, and the job that tells of it in the same transaction."""

import os
import time

import psycopg

ORDER = """
INSERT INTO orders (status) VALUES ('paid') RETURNING id
"""
JOB = """
INSERT INTO outbox.job (topic, entity_key, payload)
VALUES ('order.paid', 'order-' || %(id)s::text, json_build_object('order_id', %(id)s::bigint))
"""

with psycopg.connect(os.environ["RELAY_DATABASE_DSN"], autocommit=True) as shop:
    shop.execute("CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY, status text)")
    while True:
        with shop.transaction():
            [(order,)] = shop.execute(ORDER).fetchall()
            shop.execute(JOB, {"id": order})
        time.sleep(1)
