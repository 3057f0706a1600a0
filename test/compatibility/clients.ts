/** Published clients of other products: how many of their calls work, and which do not, with the reason. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'

export type PublishedClient = {
  client: string
  version: string
  /** `npm run suites -- clients` runs the client, or it was run by hand, in the same way. */
  run: 'suite clients' | 'by hand'
  /** How many different calls the client has. */
  calls: number
  /** Calls that do not work, each with its reason. */
  fails: { calls: string[]; why: string }[]
}

/** What came of a call; a client may make the same call several times. */
export type Outcome = { name: string; failure?: string }

export const CLIENTS = JSON.parse(readFileSync(join(import.meta.dirname, 'clients.json'), 'utf8')) as PublishedClient[]

export const failingCalls = ({ fails }: PublishedClient): string[] => fails.flatMap(({ calls }) => calls).toSorted()

export function clientNamed(client: string, version: string): PublishedClient {
  const found = CLIENTS.find((entry) => entry.client === client && entry.version === version)
  if (found === undefined) throw new Error(`clients.json has no ${client} ${version}`)
  return found
}

/** Where `install.sh` put a client; undefined where it was not called. */
export function installed(name: string): string | undefined {
  const folder = process.env['COMPATIBILITY_CLIENTS']
  const path = folder === undefined ? undefined : join(folder, name)
  return path !== undefined && existsSync(path) ? path : undefined
}

/** Asserts that the calls that failed are those of the table. */
export function expectFailures(client: PublishedClient, outcomes: readonly Outcome[]): void {
  const failed = outcomes.filter(({ failure }) => failure !== undefined)
  const known = failingCalls(client)
  expect(failed.filter(({ name }) => !known.includes(name))).toEqual([])
  expect([...new Set(failed.map(({ name }) => name))].toSorted()).toEqual(known)
  expect(new Set(outcomes.map(({ name }) => name)).size).toBe(client.calls)
}

/** The tables of `docs/compatibility.md`, without padding. */
export function tablesOf(clients: readonly PublishedClient[]): string {
  const rows = clients.map((one) => {
    const failing = new Set(failingCalls(one)).size
    return `| ${one.client} ${one.version} | ${one.calls - failing} of ${one.calls} | ${one.run} |`
  })
  const failures = clients.flatMap(({ client, version, fails }) =>
    fails.map(
      ({ calls, why }) => `| ${client} ${version} | ${calls.map((call) => `\`${call}\``).join(', ')} | ${why} |`,
    ),
  )
  return [
    '| Client | Calls that work | Run |',
    '|---|---|---|',
    ...rows,
    '',
    'Calls that do not work:',
    '',
    '| Client | Calls | Reason |',
    '|---|---|---|',
    ...failures,
  ].join('\n')
}
