/** Group commit against PostgreSQL: what a constraint, a poisoned value and a connection that dies during COMMIT come to. */
import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Batch } from '#core/database/index.ts'
import { GroupCommit, isDatabaseUnavailable, violatedConstraint } from '#core/database/index.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase, silentLogger as logger } from '../harness/database.ts'

let server: TestDatabase

beforeAll(async () => {
  server = await createTestDatabase()
  await server.database.pool.query(`
    CREATE TABLE notes (position bigint GENERATED ALWAYS AS IDENTITY, note text NOT NULL);
    CREATE TABLE note_batches (batch uuid CONSTRAINT note_batches_key UNIQUE)`)
})
afterAll(() => server[Symbol.asyncDispose]())
beforeEach(() => server.database.pool.query('TRUNCATE notes, note_batches'))

/** Writes notes; `interrupt` is called with each connection right before its COMMIT is sent, and right after. */
function noteQueue(
  interrupt: (client: pg.Client, when: 'before' | 'after') => Promise<void> = () => Promise.resolve(),
) {
  let open: pg.Client | undefined
  const queue = new GroupCommit<string, number>({
    name: 'the notes',
    item: 'the note',
    logger,
    maxItems: 100,
    maxQueuedItems: 1000,
    isCommittedBefore: (error) => violatedConstraint(error) === 'note_batches_key',
    commit: write,
  })

  async function write(batch: Batch<string, number>): Promise<number[]> {
    open ??= await server.database.dedicated('notes')
    const client = open
    const outcomes = batch.items.map((note) => note.length)
    try {
      await client.query('BEGIN')
      await client.query('INSERT INTO note_batches VALUES ($1)', [batch.id])
      for (const note of batch.items) await client.query('INSERT INTO notes (note) VALUES ($1)', [note])
      batch.committing(outcomes)
      await interrupt(client, 'before')
      await client.query('COMMIT')
      await interrupt(client, 'after')
      return outcomes
    } catch (error) {
      if (isDatabaseUnavailable(error)) open = undefined
      else await client.query('ROLLBACK')
      throw error
    }
  }

  return {
    queue,
    async [Symbol.asyncDispose]() {
      await queue.close()
      await open?.end()
    },
  }
}

async function storedNotes(): Promise<string[]> {
  const { rows } = await server.database.pool.query<{ note: string }>('SELECT note FROM notes ORDER BY position')
  return rows.map(({ note }) => note)
}

/** Ends the connection from the server's side. */
async function kill(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  const ended = new Promise((resolve) => client.once('end', resolve))
  await server.database.pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid])
  await ended
}

test('a batch whose COMMIT succeeded without a response is recognised by its id and written once', async () => {
  let kills = 0
  await using notes = noteQueue(async (client, when) => {
    if (when === 'before' || kills++ > 0) return
    await kill(client)
    await client.query('SELECT 1')
  })
  expect(await Promise.all(['a', 'bb'].map((note) => notes.queue.submit(note)))).toEqual([1, 2])
  expect(await storedNotes()).toEqual(['a', 'bb'])
  expect(kills).toBe(1)
})

test('a batch whose COMMIT never arrived is written again', async () => {
  let kills = 0
  await using notes = noteQueue(async (client, when) => {
    if (when === 'before' && kills++ === 0) await kill(client)
  })
  expect(await Promise.all(['a', 'bb'].map((note) => notes.queue.submit(note)))).toEqual([1, 2])
  expect(await storedNotes()).toEqual(['a', 'bb'])
})

test('values that PostgreSQL cannot store are rejected individually, at any position', async () => {
  await using notes = noteQueue()
  const written = Array.from({ length: 33 }, (_, index) => ([0, 16, 17, 32].includes(index) ? 'a\0b' : `note ${index}`))
  const outcomes = await Promise.allSettled(written.map((note) => notes.queue.submit(note)))
  const isStored = (note: string) => !note.includes('\0')
  expect(outcomes.map(({ status }) => status === 'fulfilled')).toEqual(written.map(isStored))
  expect(await storedNotes()).toEqual(written.filter(isStored))
})
