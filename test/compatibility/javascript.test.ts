// contract, section 13: the published JavaScript client, unmodified, every method once
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ADMIN_SECRET } from '../cli/world.ts'
import { newestMail } from '../harness/mail.ts'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { clientNamed, expectFailures, installed } from './clients.ts'
import type { Outcome } from './clients.ts'
import { ENCRYPTION_KEY, callsOf } from './javascript/calls.ts'
import { methodsOf, openSdk } from './javascript/sdk.ts'

const CLIENT = clientNamed('JavaScript client', '0.17.18')
const folder = installed('javascript')

test.runIf(process.env['CI'] === 'true')('the JavaScript client is installed where tests decide', () => {
  expect(folder).toBeDefined()
})

describe.skipIf(folder === undefined)('the JavaScript client', () => {
  let installation: Installation
  let whole: Whole
  const outcomes: Outcome[] = []
  let methods: string[] = []

  beforeAll(async () => {
    installation = await createInstallation({ SKEIN_BOOTSTRAP_ENCRYPT_KEY: ENCRYPTION_KEY })
    whole = await startWhole(installation)
    const sdk = openSdk(folder ?? '', installation.base)
    methods = methodsOf(sdk)
    const settings = {
      sdk,
      admin: { username: 'admin', secret: ADMIN_SECRET },
      mailToken: (to: string) => tokenOfMail(installation.dataDir, to),
    }
    for (const { name, run, check, isEventual } of callsOf(settings)) {
      const attempt = async () => {
        const result = await run()
        if (check?.(result as never) === false) throw new Error(`answered ${JSON.stringify(result).slice(0, 300)}`)
        return true
      }
      try {
        await (isEventual === true ? until(() => attempt().catch(() => false), name) : attempt())
        outcomes.push({ name })
      } catch (error) {
        outcomes.push({ name, failure: error instanceof Error ? error.message : JSON.stringify(error) })
      }
    }
  }, 240_000)
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

async function tokenOfMail(dataDir: string, to: string): Promise<string> {
  const token = () => /token=([\w.~-]+)/u.exec(newestMail(dataDir, to) ?? '')?.[1]
  return await until(token, `a mail to ${to}`)
}
