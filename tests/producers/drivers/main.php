<?php

// Plays the story, beside page.php.
require __DIR__ . '/page.php';

$pdo = new PDO(
    sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE')),
    getenv('PGUSER'),
);
echo pay($pdo, 42, '19.99', getenv('TRACEPARENT')), "\n";
try {
    pay($pdo, 13, '19.99');
    throw new LogicException('order 13 was paid');
} catch (PDOException $refused) {
    if (!str_contains($refused->getMessage(), 'refused at COMMIT')) {
        throw $refused;
    }
}
create($pdo, [1001, 1002, 1003]);
