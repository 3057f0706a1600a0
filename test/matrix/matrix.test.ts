/**
 * One walk over all operations, by all callers, in two tenants with the same ids; then each rule is held against its responses:
 * - who may do what, as the reviewed access-matrix.txt and account-matrix.txt say (contract 2.3 to 2.5, 5 and 6; decisions 29, 31, 40,
 *   45 and 51);
 * - tenants never see or affect each other, and ids of another one are answered as ids that nobody has (contract section 0, decisions
 *   31b and 45);
 * - without valid credentials every operation gives the same 401;
 * - every response is one of openapi.json (contract section 12, decision 44).
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { completeDocument } from '#http/index.ts'
import type { Document } from '#http/index.ts'
import { startFullApp } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { isAboutAccounts, walkAccounts } from './accounts.ts'
import { printAccountMatrix, printMatrix } from './print.ts'
import { createRequests, nameOf } from './requests.ts'
import type { Row } from './rows.ts'
import { askOthersForForeign, askRowsForForeign, furnishForeign } from './tenants.ts'
import type { Tenancy } from './tenants.ts'
import { isInside, routesOf, rowsInside, walkRows } from './walk.ts'
import type { Walk } from './walk.ts'
import { createWorld } from './world.ts'

// Some 15 s on two cores that do nothing else.
const DEADLINE_MS = 600_000
const REVIEW =
  'differs from the responses: run `npx vitest run --project matrix test/matrix -u`, and review each line that it changes'

let database: TestDatabase
let full: FullApp
let rows: Row[]
let walk: Walk
let ofRows: Tenancy
let ofOthers: Tenancy
let changed: string[]
let accounts: Awaited<ReturnType<typeof walkAccounts>>

beforeAll(async () => {
  database = await createTestDatabase()
  full = await startFullApp(database.address)
  rows = rowsInside(full)
  const requests = createRequests(full)
  const world = await createWorld(full, database.database)
  walk = await walkRows(rows, world)

  const foreign = await furnishForeign(world.twin, requests, database.database.db)
  const before = await world.twin.held()
  ofRows = await askRowsForForeign(rows, world, foreign)
  ofOthers = await askOthersForForeign(full, world, foreign)
  changed = [...before.symmetricDifference(await world.twin.held())]

  accounts = await walkAccounts(full, requests, world.tokens.adm ?? '')
}, DEADLINE_MS)
afterAll(async () => {
  await full[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

describe('who may do what', () => {
  test('every call in a domain by every caller is answered as access-matrix.txt says', async () => {
    const file = join(import.meta.dirname, 'access-matrix.txt')
    await expect(printMatrix(walk.lines), `access-matrix.txt ${REVIEW}`).toMatchFileSnapshot(file)
  })

  test('every call about users by every caller is answered as account-matrix.txt says', async () => {
    const file = join(import.meta.dirname, 'account-matrix.txt')
    await expect(printAccountMatrix(accounts.lines), `account-matrix.txt ${REVIEW}`).toMatchFileSnapshot(file)
  })

  test('every route of openapi.json is in a matrix, or in elsewhere.txt with a reason', async () => {
    const published = (await full.app.inject({ method: 'GET', url: '/openapi.json' })).json<Document>()
    const names = Object.entries(completeDocument(published).paths ?? {}).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    )
    expect(names.length).toBeGreaterThan(600)
    const covered = new Set(
      routesOf(full)
        .filter((route) => isInside(route) || isAboutAccounts(route))
        .map(nameOf),
    )
    const listed = readFileSync(join(import.meta.dirname, 'elsewhere.txt'), 'utf8')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => line.split(/\s{2,}/))
    for (const [route, reason] of listed) expect(reason, `${route} needs a reason`).toMatch(/\S/)
    const listedNames = new Set(listed.map(([route]) => route))
    const missing = names.filter((name) => !covered.has(name) && !listedNames.has(name))
    expect(
      missing,
      'no matrix asks these routes: give each its row (isInside of walk.ts, isAboutAccounts of accounts.ts), or a line with a reason and a test in elsewhere.txt',
    ).toEqual([])
    const needless = [...listedNames].filter((name) => name === undefined || covered.has(name) || !names.includes(name))
    expect(needless, 'elsewhere.txt lists routes that are in a matrix, or that do not exist: remove the lines').toEqual(
      [],
    )
  })

  test('most calls of the owner succeed, and none lacks a valid body', () => {
    const own = walk.lines.map(({ row, cells }) => ({ row, status: Number(cells[walk.columns.indexOf('own')]) }))
    const malformed = own.filter(({ row, status }) => status === 400 && row.url !== '/:domain_id/stream')
    expect(
      malformed.map(({ row }) => row.label),
      'the owner gets 400: add the body of the call to bodyOf, or its query to queryOf, in rows.ts',
    ).toEqual([])
    expect(own.filter(({ status }) => status === 401 || status >= 500).map(({ row }) => row.label)).toEqual([])
    // Some calls name a rule, an alarm, a consumer or a key of a state by an id that nobody has.
    expect(own.filter(({ status }) => status < 300).length).toBeGreaterThan(0.86 * own.length)
  })

  test('without valid credentials every call gets the same 401, whatever exists', () => {
    const ofUsers =
      '401 {"error":"unauthenticated","message":"failed to perform authentication: missing or invalid bearer"}'
    const ofDevices =
      '401 {"error":"unauthenticated","message":"failed to perform authentication: missing or invalid credentials"}'
    // The form of the specification of Iceberg.
    const ofCatalogue =
      '401 {"error":{"message":"failed to perform authentication: missing or invalid bearer","type":"NotAuthorizedException","code":401}}'
    for (const [column, answers] of walk.refusals)
      expect(answers.difference(new Set([ofUsers, ofDevices, ofCatalogue])), column).toEqual(new Set())
    expect([...walk.refusals.keys()]).toEqual(['nob', 'exp', 'ref', 'dis'])
  })
})

describe('tenants', () => {
  test('no call of one tenant shows or changes anything of another with the same ids', () => {
    expect(walk.leaks).toEqual([])
  })

  test('what is in the domain of another tenant and what does not exist get the same response, byte for byte, in one domain and in none', () => {
    expect(ofRows.told).toEqual([])
    expect(ofRows.asked).toBeGreaterThan(600)
  })

  test('no other operation shows anything of another tenant, and existing and missing entities are refused alike', () => {
    expect(ofOthers.told).toEqual([])
    expect(ofOthers.asked).toBeGreaterThan(60)
  })

  test('no call of another tenant changes anything', () => {
    expect(changed).toEqual([])
  })
})

test('no response is a server error, or has a status or a form that openapi.json lacks', () => {
  const all = [walk, ofRows, ofOthers, accounts].flatMap(({ undeclared }) => undeclared)
  // One of each kind is enough to read.
  const kinds = new Map(all.map((fault) => [fault.replace(/ [{[].*/s, ''), fault]))
  expect([...kinds.values()]).toEqual([])
})
