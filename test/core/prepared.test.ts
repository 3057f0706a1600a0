/** Statements that are sent before those ahead of them are answered: order, failures and the end of their transaction. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { prepared, refusing } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

const INSERT = prepared<{ id: number }>('test_insert', 'INSERT INTO rooms (id) VALUES ($1) RETURNING id')
const COUNT = prepared<{ count: number }>('test_count', 'SELECT count(*) AS count FROM rooms')
const INSERT_CHAIR = prepared('test_insert_chair', 'INSERT INTO chairs (room_id) VALUES ($1)')
const TAKEN = { rooms_pkey: () => new ServiceError('conflict', 'the room is taken') }

let own: TestDatabase
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = own.database
  await sql`CREATE TABLE rooms (id integer CONSTRAINT rooms_pkey PRIMARY KEY);
    CREATE TABLE chairs (room_id integer NOT NULL CONSTRAINT chairs_room_fkey REFERENCES rooms)`.execute(database.db)
})
beforeEach(async () => {
  await sql`TRUNCATE rooms, chairs`.execute(database.db)
})
afterAll(async () => {
  await own[Symbol.asyncDispose]()
})

const roomsNow = async () => (await COUNT(database.db, [])).rows[0]?.count

test('a statement sees the writes of earlier statements, awaited or not', async () => {
  const seen = await database.transaction(async (tx) => {
    tx.defer(INSERT(tx, [1]))
    await sql`INSERT INTO rooms (id) VALUES (2)`.execute(tx)
    tx.defer(INSERT(tx, [3]))
    return (await COUNT(tx, [])).rows
  })
  expect(seen).toEqual([{ count: 3 }])
  expect(await roomsNow()).toBe(3)
})

test('a statement that runs several times concurrently is parsed once', async () => {
  const made = await database.transaction(
    async (tx) => await Promise.all([1, 2, 3, 4].map(async (id) => (await INSERT(tx, [id])).rows[0]?.id)),
  )
  expect(made).toEqual([1, 2, 3, 4])
})

test('a deferred statement that fails rolls back everything and reports why', async () => {
  const work = database.transaction(async (tx) => {
    await INSERT(tx, [1])
    tx.defer(refusing(TAKEN, INSERT(tx, [1])))
    tx.defer(INSERT(tx, [2]))
    return 'made'
  })
  await expect(work).rejects.toMatchObject({ kind: 'conflict', message: 'the room is taken' })
  expect(await roomsNow()).toBe(0)
})

test('the reason is the statement that failed first, not one that was skipped because of it', async () => {
  const work = database.transaction(async (tx) => {
    await INSERT(tx, [1])
    tx.defer(refusing(TAKEN, INSERT(tx, [1])))
    await INSERT(tx, [2])
  })
  await expect(work).rejects.toMatchObject({ kind: 'conflict' })
})

test('an error of the work itself rolls back deferred statements', async () => {
  const work = database.transaction(async (tx) => {
    tx.defer(INSERT(tx, [1]))
    throw new ServiceError('forbidden', 'not here')
  })
  await expect(work).rejects.toMatchObject({ kind: 'forbidden' })
  expect(await roomsNow()).toBe(0)
})

test('a constraint that is checked at the commit fails the commit', async () => {
  await sql`ALTER TABLE chairs ALTER CONSTRAINT chairs_room_fkey DEFERRABLE INITIALLY DEFERRED`.execute(database.db)
  const work = database.transaction(async (tx) => {
    tx.defer(INSERT_CHAIR(tx, [77]))
    return await Promise.resolve('made')
  })
  await expect(work).rejects.toMatchObject({ constraint: 'chairs_room_fkey' })
  expect((await sql`SELECT FROM chairs`.execute(database.db)).rows).toEqual([])
})

test('no statement is sent after the end of a transaction', async () => {
  const { promise: isOver, resolve: end } = Promise.withResolvers<undefined>()
  let late: Promise<unknown> | undefined
  await database.transaction(async (tx) => {
    late = isOver.then(() => INSERT(tx, [1]))
    late.catch(() => undefined)
    await INSERT(tx, [2])
  })
  end(undefined)
  await expect(late).rejects.toThrow('has ended')
  expect(await roomsNow()).toBe(1)
})

test('a statement that was not sent before the commit is an error, not a silent loss', async () => {
  const work = database.transaction(async (tx) => {
    await INSERT(tx, [1])
    tx.defer(new Promise<void>((resolve) => void setImmediate(resolve)).then(() => INSERT(tx, [2])))
  })
  await expect(work).rejects.toThrow('deferred before it was sent')
})

test('a deadlock in a deferred statement is repeated', async () => {
  await sql`INSERT INTO rooms (id) VALUES (1), (2)`.execute(database.db)
  const held = { first: Promise.withResolvers<undefined>(), second: Promise.withResolvers<undefined>() }
  const lock = prepared('test_lock', 'SELECT FROM rooms WHERE id = $1 FOR UPDATE')
  let attempts = 0
  const crosswise = (mine: number, other: number, now: PromiseWithResolvers<undefined>, then: Promise<undefined>) =>
    database.transaction(async (tx) => {
      attempts++
      await lock(tx, [mine])
      now.resolve(undefined)
      await then
      tx.defer(lock(tx, [other]))
    })
  await Promise.all([
    crosswise(1, 2, held.first, held.second.promise),
    crosswise(2, 1, held.second, held.first.promise),
  ])
  // A repeated transaction can be faster than the one that it waited for, and block it again.
  expect(attempts).toBeGreaterThanOrEqual(3)
})

test('statements stay prepared when the transaction that first used them is rolled back', async () => {
  for (const id of [1, 1, 1]) {
    const work = database.transaction(async (tx) => {
      await INSERT(tx, [id])
      throw new ServiceError('conflict', 'no')
    })
    await expect(work).rejects.toMatchObject({ kind: 'conflict' })
  }
  expect((await INSERT(database.db, [5])).rows).toEqual([{ id: 5 }])
})

test('a second statement of one name is refused at its definition', () => {
  expect(() => prepared('test_insert', 'SELECT 1')).toThrow('two prepared statements')
})
