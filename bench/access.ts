/**
 * Checks of the access policy against a database of a million clients below 20 levels of groups. A cached check is a
 * ratio to one look-up in a map, an uncached one a ratio to its shortest statement.
 */
import { AccessPolicy } from '#api/identity/index.ts'
import type { EntityFacts, UserPrincipal } from '#api/identity/index.ts'
import { readConfig } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#infrastructure/index.ts'
import { newId } from '#core/ids.ts'
import { createLifecycle } from '#core/program/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'

const CLIENTS = 1_000_000
/** A statement times out after 30 s. */
const CLIENTS_PER_STATEMENT = 50_000
const LEVELS = 20
/** Grants of the member on single clients, in addition to the role on the topmost group. */
const DIRECT_GRANTS = 20_000
const CHECKED = 1000
const ROUNDS = 200
const COLD_CHECKS = 300
const TARGET_CACHED_US = 2
const TARGET_COLD_MS = 5

type World = { member: UserPrincipal; domainId: string; below: EntityFacts[]; direct: EntityFacts[] }

export async function benchAccess(): Promise<void> {
  const dataDir = newDataDir()
  const logger = createLogger({ name: 'bench', level: 'error' })
  const life = createLifecycle(logger)
  try {
    const config = readConfig(INFRASTRUCTURE_SETTINGS, { SKEIN_DATA_DIR: dataDir })
    const { database } = await startInfrastructure(life, { config, logger, kind: 'bench', maxConnections: 4 })
    const world = await fill(database)
    await settle(database)
    // Nothing changes here, so facts are always fresh.
    const policy = AccessPolicy.create({ database, isFresh: () => true })
    const floorNs = measureMapLookup()
    const below = await measureCached(policy, world, world.below)
    const direct = await measureCached(policy, world, world.direct)
    const entering = await measureEntering(policy, world, world.below)
    const statementMs = await measureCold(() => sql`SELECT 1`.execute(database.db))
    const cold = async (entities: readonly EntityFacts[]) => {
      let next = 0
      return await measureCold(async () => {
        const entity = entities[next++ % entities.length] as EntityFacts
        // Drops everything that is cached about this caller and this entity.
        policy.invalidate([world.member.key, entity.key, entity.parentGroupKey ?? entity.key])
        const domain = await policy.enter(world.member, world.domainId)
        await domain.requireOn(entity, 'read')
      })
    }
    const [coldBelow, coldDirect] = [await cold(world.below), await cold(world.direct)]
    const cached = (name: string, ns: number) => ({
      name,
      figure: `${(ns / 1000).toFixed(2)} µs`,
      ratio: `${(ns / floorNs).toFixed(1)} look-ups in a map`,
      target: `${TARGET_CACHED_US} µs`,
      isReached: ns < TARGET_CACHED_US * 1000,
    })
    const uncached = (name: string, ms: readonly number[]) => ({
      name,
      figure: `p50 ${milliseconds(median(ms))}, p99 ${milliseconds(percentile(ms, 0.99))}`,
      ratio: `${(median(ms) / median(statementMs)).toFixed(1)} statements`,
      target: milliseconds(TARGET_COLD_MS),
      isReached: median(ms) < TARGET_COLD_MS,
    })
    printTable(
      `Access checks, ${CLIENTS.toLocaleString('en')} clients, ${LEVELS} levels of groups, a member with ${DIRECT_GRANTS.toLocaleString('en')} direct grants`,
      [
        cached('cached, by a role 20 groups above', below),
        cached('cached, by a direct role', direct),
        {
          name: 'cached, domain entered anew',
          figure: `${(entering / 1000).toFixed(2)} µs`,
          ratio: `${(entering / floorNs).toFixed(1)} look-ups in a map`,
        },
        uncached('uncached, by a role 20 groups above', coldBelow),
        uncached('uncached, by a direct role', coldDirect),
      ],
    )
  } finally {
    await life.stop()
    removeDataDir(dataDir)
  }
}

/** A domain with a chain of groups, clients in all of them, and a member with a role at the top and many direct ones. */
async function fill(database: Database): Promise<World> {
  const [userId, domainId] = [newId(), newId()]
  return await database.transaction(async (tx) => {
    // The look-up indexes of listings play no part here and take most of the time.
    await sql`DROP INDEX clients_name_trgm, clients_tags, clients_metadata`.execute(tx)
    const keyOf = async (insert: ReturnType<typeof sql<{ key: number }>>) =>
      ((await insert.execute(tx)).rows[0] as { key: number }).key
    const userKey = await keyOf(
      sql`INSERT INTO users (id, username, secret_hash) VALUES (${userId}, 'bench', '') RETURNING key`,
    )
    const domainKey = await keyOf(
      sql`INSERT INTO domains (id, name, route) VALUES (${domainId}, 'bench', 'bench') RETURNING key`,
    )
    let parentKey: number | null = null
    let topKey = 0
    for (let level = 0; level < LEVELS; level++) {
      const groupKey: number = await keyOf(sql`INSERT INTO groups (domain_key, id, parent_key, name)
        VALUES (${domainKey}, ${newId()}, ${parentKey}, 'group') RETURNING key`)
      await sql`INSERT INTO group_closure (ancestor_key, descendant_key, depth)
        SELECT ${groupKey}::bigint, ${groupKey}::bigint, 0
        UNION ALL SELECT ancestor_key, ${groupKey}::bigint, depth + 1 FROM group_closure WHERE descendant_key = ${parentKey}`.execute(
        tx,
      )
      if (level === 0) topKey = groupKey
      parentKey = groupKey
    }
    for (let first = 1; first < CLIENTS; first += CLIENTS_PER_STATEMENT)
      await sql`INSERT INTO clients (domain_key, id, secret_mac, secret_sealed, parent_group_key)
        SELECT ${domainKey}, gen_random_uuid(), sha256(int4send(n)), ''::bytea, CASE WHEN n % 2 = 0 THEN ${parentKey}::bigint END
          FROM generate_series(${first}::int, ${first + CLIENTS_PER_STATEMENT - 1}::int) n`.execute(tx)
    const roleOn = (type: string, key: number, actions: readonly string[]) =>
      keyOf(sql`INSERT INTO roles (id, entity_type, domain_key, entity_key, name, actions)
        VALUES (${newId()}, ${type}, ${domainKey}, ${key}, 'bench', ${actions}) RETURNING key`)
    const [domainRole, groupRole] = [
      await roleOn('domain', domainKey, ['read']),
      await roleOn('group', topKey, ['subgroup_client_read']),
    ]
    await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
      VALUES (${userKey}, 'domain', ${domainKey}, ${domainKey}, ${domainRole}), (${userKey}, 'group', ${domainKey}, ${topKey}, ${groupRole})`.execute(
      tx,
    )
    await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key)
      SELECT ${userKey}, 'client', ${domainKey}, key FROM clients WHERE parent_group_key IS NULL LIMIT ${DIRECT_GRANTS}`.execute(
      tx,
    )
    const sample = async (where: ReturnType<typeof sql>) => {
      const { rows } = await sql<{ key: number; parent_group_key: number | null }>`
        SELECT key, parent_group_key FROM clients c WHERE ${where} LIMIT ${CHECKED}`.execute(tx)
      return rows.map((row): EntityFacts => ({ type: 'client', key: row.key, parentGroupKey: row.parent_group_key }))
    }
    return {
      member: {
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
      below: await sample(sql`parent_group_key IS NOT NULL`),
      direct: await sample(
        sql`key IN (SELECT entity_key FROM grants WHERE user_key = ${userKey} AND entity_type = 'client')`,
      ),
    }
  })
}

/** Without it the measurement would include the work that PostgreSQL does after such a load. */
async function settle(database: Database): Promise<void> {
  const connection = await database.dedicated('bench')
  try {
    await connection.query('VACUUM ANALYZE')
    await connection.query('CHECKPOINT')
  } finally {
    await connection.end()
  }
}

/** Nanoseconds of one look-up by a text key, the least that a cache costs. */
function measureMapLookup(): number {
  const keys = Array.from({ length: CHECKED }, (_, index) => `1/${index + 1_000_000}`)
  const map = new Map(keys.map((key, index) => [key, index]))
  let found = 0
  const began = performance.now()
  for (let round = 0; round < ROUNDS; round++)
    for (let index = 0; index < CHECKED; index++) found += map.get(`1/${index + 1_000_000}`) === undefined ? 0 : 1
  const ns = ((performance.now() - began) * 1e6) / found
  return ns
}

async function measureCached(policy: AccessPolicy, world: World, entities: readonly EntityFacts[]): Promise<number> {
  const domain = await policy.enter(world.member, world.domainId)
  return await nanosecondsPerCheck(entities, async (entity) => void (await domain.requireOn(entity, 'read')))
}

async function measureEntering(policy: AccessPolicy, world: World, entities: readonly EntityFacts[]): Promise<number> {
  return await nanosecondsPerCheck(entities, async (entity) => {
    const domain = await policy.enter(world.member, world.domainId)
    await domain.requireOn(entity, 'read')
  })
}

async function nanosecondsPerCheck(
  entities: readonly EntityFacts[],
  check: (entity: EntityFacts) => Promise<void>,
): Promise<number> {
  for (const entity of entities) await check(entity)
  const rounds: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const began = performance.now()
    for (const entity of entities) await check(entity)
    rounds.push(((performance.now() - began) * 1e6) / entities.length)
  }
  return median(rounds)
}

async function measureCold(work: () => Promise<unknown>): Promise<number[]> {
  const durations: number[] = []
  for (let count = 0; count < COLD_CHECKS; count++) {
    const began = performance.now()
    await work()
    durations.push(performance.now() - began)
  }
  return durations.slice(COLD_CHECKS / 10)
}
