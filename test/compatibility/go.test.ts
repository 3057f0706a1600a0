// contract, section 13: the published Go client, unmodified, every method once
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ADMIN_SECRET } from '../cli/world.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { clientNamed, expectFailures, installed } from './clients.ts'
import type { Outcome } from './clients.ts'

const CLIENT = clientNamed('SuperMQ Go client', 'v0.17.0')
const DEADLINE_MS = 240_000
const program = installed('go-client')

test.runIf(process.env['CI'] === 'true')('the Go client is installed where tests decide', () => {
  expect(program).toBeDefined()
})

describe.skipIf(program === undefined)('the Go client', () => {
  let installation: Installation
  let whole: Whole
  let methods: string[]
  let outcomes: Outcome[]

  beforeAll(async () => {
    installation = await createInstallation()
    whole = await startWhole(installation)
    const args = [installation.base, 'admin', ADMIN_SECRET, join(installation.dataDir, 'mail')]
    const { stdout } = await promisify(execFile)(program ?? '', args, { timeout: DEADLINE_MS })
    ;({ methods, outcomes } = JSON.parse(stdout) as { methods: string[]; outcomes: Outcome[] })
  }, DEADLINE_MS)
  afterAll(async () => {
    await whole?.[Symbol.asyncDispose]()
    installation?.[Symbol.dispose]()
  })

  test('is called by every method that it has', () => {
    const called = new Set(outcomes.map(({ name }) => name))
    expect(methods.filter((name) => !called.has(name))).toEqual([])
  })

  test('fails in the calls that the table of clients names, and in no other', () => {
    expectFailures(CLIENT, outcomes)
  })
})
