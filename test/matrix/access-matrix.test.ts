/**
 * Who may do what: every call inside a domain by every kind of caller, compared with the reviewed file access-matrix.txt
 * (contract 2.3 to 2.5, decisions 31, 40 and 45).
 */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { startFullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import { fillMatrix } from './fill.ts'
import { printMatrix } from './print.ts'
import { createWorld } from './world.ts'

// Some 50 s on two cores that do nothing else.
const DEADLINE_MS = 900_000

test(
  'every call by every caller is answered as access-matrix.txt says',
  async () => {
    await using database = await createTestDatabase()
    await using full = await startFullApp(database.address)
    const world = await createWorld(full, database.database)
    const lines = await fillMatrix(full, world)
    await expect(printMatrix(lines)).toMatchFileSnapshot(join(import.meta.dirname, 'access-matrix.txt'))
  },
  DEADLINE_MS,
)
