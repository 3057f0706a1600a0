/** Listings of a journal of ten million records, and what noting its subjects costs a bulk creation. */
import { AccessPolicy } from '#api/identity/index.ts'
import type { UserPrincipal } from '#api/identity/index.ts'
import { JournalService } from '#api/identity/journal/index.ts'
import { readConfig } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import { newId } from '#core/ids.ts'
import { createLifecycle } from '#core/program/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { milliseconds, percentile, printTable } from './statistics.ts'

const RECORDS = 10_000_000
/** All in the one large domain, by one caller. */
const RECORDS_OF_DOMAIN = 8_000_000
const CLIENTS = 500_000
const REPEATS = 40
const TARGET_PAGE_MS = 20
const TARGET_TOTAL_MS = 300
const TARGET_DEEP_MS = 50
const BULK = 10_000
const FILL_DEADLINE_MS = 900_000

type World = { caller: UserPrincipal; domainId: string; clientIds: string[] }

export async function benchJournal(): Promise<void> {
  const dataDir = newDataDir()
  const logger = createLogger({ name: 'bench', level: 'warn' })
  const life = createLifecycle(logger)
  try {
    const config = readConfig(INFRASTRUCTURE_SETTINGS, { SKEIN_DATA_DIR: dataDir })
    const { database } = await startInfrastructure(life, { config, logger, kind: 'bench', maxConnections: 4 })
    const world = await fill(database)
    const access = AccessPolicy.create({ database, isFresh: () => true })
    const fresh = () => new JournalService({ database, access })
    await measure(fresh, world)
    await measureBulk(database)
  } finally {
    await life.stop()
    removeDataDir(dataDir)
  }
}

async function measure(fresh: () => JournalService, { caller, domainId, clientIds }: World): Promise<void> {
  const query = { offset: 0, limit: 10, with_attributes: true }
  const ofDomain = (journal: JournalService, more: object = {}) =>
    journal.ofEntity(caller, domainId, 'domain', domainId, { ...query, ...more })
  const first = async (work: () => Promise<unknown>) => {
    const began = performance.now()
    await work()
    return [performance.now() - began]
  }
  const again = async (work: (index: number) => Promise<unknown>) => {
    const times: number[] = []
    for (let index = 0; index < REPEATS; index++) times.push(...(await first(() => work(index))))
    return times
  }
  const row = (name: string, times: readonly number[], targetMs: number) => ({
    name,
    figure: `p50 ${milliseconds(percentile(times, 0.5))}, p99 ${milliseconds(percentile(times, 0.99))}`,
    target: milliseconds(targetMs),
    isReached: percentile(times, 0.99) < targetMs,
  })
  const journal = fresh()
  const total = await first(() => ofDomain(journal))
  const page = await again(() => ofDomain(journal))
  printTable(
    `Journal, ${RECORDS.toLocaleString('en')} records, ${RECORDS_OF_DOMAIN.toLocaleString('en')} of the domain and its caller`,
    [
      row('a domain, first total', total, TARGET_TOTAL_MS),
      row('a domain, page with known total', page, TARGET_PAGE_MS),
      row(
        'a domain, one operation, first total',
        await first(() => ofDomain(journal, { operations: ['client.remove'] })),
        TARGET_TOTAL_MS,
      ),
      row(
        'a domain, one operation, page',
        await again(() => ofDomain(journal, { operations: ['client.remove'] })),
        TARGET_PAGE_MS,
      ),
      row(
        'a domain, offset 10,000',
        await again((index) => ofDomain(journal, { offset: 10_000 + index })),
        TARGET_DEEP_MS,
      ),
      row('a domain, offset 1,000,000', await first(() => ofDomain(journal, { offset: 1_000_000 })), TARGET_DEEP_MS),
      row(
        'a domain, the last page',
        await again(() => ofDomain(journal, { offset: RECORDS_OF_DOMAIN - 20 })),
        TARGET_PAGE_MS,
      ),
      row(
        'a client, first total and page',
        await again((index) => journal.ofEntity(caller, domainId, 'client', clientIds[index] ?? '', query)),
        TARGET_PAGE_MS,
      ),
      row(
        'a user, offset 1,000,000',
        await first(() => journal.ofUser(caller, caller.id, { ...query, offset: 1_000_000 })),
        TARGET_DEEP_MS,
      ),
      row('a user, first total', await first(() => journal.ofUser(caller, caller.id, query)), TARGET_TOTAL_MS),
      row('a user, page with known total', await again(() => journal.ofUser(caller, caller.id, query)), TARGET_PAGE_MS),
    ],
  )
}

/** One record that names ten thousand entities. */
async function measureBulk(database: Database): Promise<void> {
  const times: number[] = []
  for (let round = 0; round < 5; round++) {
    const began = performance.now()
    await sql`INSERT INTO journal (operation, domain_key, actor_kind, entity_keys)
      SELECT 'client.create', 1, 'system', array_agg(key) FROM generate_series(${round * BULK + 1}::bigint, ${(round + 1) * BULK}) AS list (key)`.execute(
      database.db,
    )
    times.push(performance.now() - began)
  }
  printTable('Journal, a record of 10,000 entities', [
    { name: 'written', figure: milliseconds(percentile(times, 0.5)) },
  ])
}

async function fill(database: Database): Promise<World> {
  const { db } = database
  const [userId, domainId] = [newId(), newId()]
  const one = async (statement: ReturnType<typeof sql<{ key: number }>>) =>
    ((await statement.execute(db)).rows[0] as { key: number }).key
  const userKey = await one(
    sql<{ key: number }>`INSERT INTO users (id, username, secret_hash) VALUES (${userId}, 'bench', '-') RETURNING key`,
  )
  const domainKey = await one(
    sql<{ key: number }>`INSERT INTO domains (id, name, route) VALUES (${domainId}, 'bench', 'bench') RETURNING key`,
  )
  await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key) VALUES (${userKey}, 'domain', ${domainKey}, ${domainKey})`.execute(
    db,
  )
  const client = await database.dedicated('bench fill')
  try {
    await client.query(
      `SET statement_timeout = ${FILL_DEADLINE_MS}; SET maintenance_work_mem = '512MB'; SET work_mem = '256MB'`,
    )
    const { rows } = await client.query<{ key: number; id: string }>(
      `INSERT INTO clients (domain_key, id, secret_mac, secret_sealed)
       SELECT $1, gen_random_uuid(), int8send(n), '' FROM generate_series(1, $2::int) n RETURNING key, id`,
      [domainKey, CLIENTS],
    )
    const firstKey = rows[0]?.key ?? 0
    await client.query('ALTER TABLE journal DISABLE TRIGGER USER')
    // Four of five changes belong to the large domain; the clients alternate without an order.
    await client.query(
      `INSERT INTO journal (occurred_at, operation, domain_key, actor_kind, actor_key, entity_keys, attributes)
       SELECT now() - make_interval(secs => ($1::int - n) * 3),
              CASE WHEN n % 1000 = 0 THEN 'client.remove' ELSE 'client.update' END,
              CASE WHEN n % 5 = 0 THEN 1000000000 + n % 100 ELSE $2::bigint END, 'user',
              CASE WHEN n % 5 = 0 THEN 2000000000 + n % 100 ELSE $3::bigint END,
              ARRAY[CASE WHEN n % 5 = 0 THEN 3000000000 + n % 100000 ELSE $4::bigint + (n * 7919::bigint) % $5 END],
              '{"id": "b7bfc4b6-c18d-47c5-b343-98235c5acc19", "before": {"name": "pump"}, "after": {"name": "north pump"}}'
         FROM generate_series(1, $1) n`,
      [RECORDS, domainKey, userKey, firstKey, CLIENTS],
    )
    await client.query('ALTER TABLE journal ENABLE TRIGGER USER')
    await client.query(
      `INSERT INTO journal_subjects (entity_key, occurred_at, xid, seq, operation)
       SELECT subject.key, occurred_at, xid, seq, operation FROM journal, unnest(entity_keys || actor_key) AS subject (key)
       ORDER BY 1, 2`,
    )
    await client.query('VACUUM (ANALYZE) journal, journal_subjects')
    // The totals that the counting consumers would have by now.
    await client.query(
      `INSERT INTO journal_totals (scope_key, operation, total)
       SELECT domain_key, operation, count(*) FROM journal WHERE domain_key IS NOT NULL GROUP BY 1, 2
       UNION ALL SELECT actor_key, operation, count(*) FROM journal JOIN users u ON u.key = actor_key GROUP BY 1, 2`,
    )
    await client.query(
      `INSERT INTO journal_days (scope_key, day, operation, total)
       SELECT domain_key, occurred_at::date, operation, count(*) FROM journal WHERE domain_key IS NOT NULL GROUP BY 1, 2, 3
       UNION ALL SELECT actor_key, occurred_at::date, operation, count(*) FROM journal JOIN users u ON u.key = actor_key GROUP BY 1, 2, 3`,
    )
    await client.query(
      `INSERT INTO consumers (name, xid, seq)
       SELECT name, xid, seq FROM unnest(ARRAY['journal.totals', 'journal.days']) AS list (name),
              (SELECT xid, seq FROM journal ORDER BY xid DESC, seq DESC LIMIT 1) last
       ON CONFLICT ON CONSTRAINT consumers_pkey DO UPDATE SET xid = EXCLUDED.xid, seq = EXCLUDED.seq`,
    )
    const sample = rows.slice(0, REPEATS).map(({ id }) => id)
    return {
      caller: {
        kind: 'user',
        key: userKey,
        id: userId,
        isPlatformAdmin: false,
        boundDomainKey: undefined,
        sessionId: undefined,
        credential: 'login',
        scope: undefined,
        origin: undefined,
      },
      domainId,
      clientIds: sample,
    }
  } finally {
    await client.end()
  }
}
