/** `skein clients state`: what a client should be, and what it reports. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Call, Cli, Command } from '../shared/command.ts'
import { secondsOf } from '../shared/duration.ts'
import { isRecord, jsonObject } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

/** `--document` is its name; without it, the document without a name. */
const path = ({ flags }: Given) => {
  const name = flags.get('document')
  return `/{domain}/clients/{client_id}/desired-state${name === undefined ? '' : `/${encodeURIComponent(name)}`}`
}
const VIEW: Call = { method: 'GET', service: 'clients', path }
const COLUMNS = ['version', 'desired', 'reported', 'delta', 'desired_at', 'reported_at']
/** One request waits as long for a change. */
const WAIT_MS = 30_000
/** A server that does not wait is asked again after this time. */
const PAUSE_MS = 1000

async function diff(cli: Cli, given: Given): Promise<void> {
  const { value } = await cli.call(VIEW, given)
  const delta = isRecord(value) && isRecord(value['delta']) ? value['delta'] : {}
  cli.output.data(delta)
  if (Object.keys(delta).length === 0) cli.output.note('the client reports everything that is desired')
}

/** Nothing after Ctrl-C, which ends the wait. */
async function viewed(cli: Cli, call: Call, given: Given): Promise<{ value?: unknown }> {
  try {
    return await cli.call(call, given)
  } catch (error) {
    if (!cli.signal.aborted) throw error
    return {}
  }
}

async function watch(cli: Cli, given: Given): Promise<void> {
  const timeout = given.flags.get('timeout')
  const endsAt = timeout === undefined ? Infinity : performance.now() + secondsOf(timeout, '--timeout') * 1000
  let shown: unknown
  for (;;) {
    const beganAt = performance.now()
    const waitMs = Math.ceil(Math.min(WAIT_MS, Math.max(endsAt - beganAt, 0)))
    const parameters = () => ({ wait: `${waitMs}ms`, version: String(shown) })
    const { value } = await viewed(cli, shown === undefined ? VIEW : { ...VIEW, parameters }, given)
    const version = isRecord(value) ? value['version'] : undefined
    if (cli.signal.aborted) return
    const isSame = version === shown
    if (!isSame) cli.output.data(value, { columns: COLUMNS })
    shown = version
    const now = performance.now()
    if (now >= endsAt || cli.signal.aborted) return
    const pauseMs = isSame ? Math.min(PAUSE_MS - (now - beganAt), endsAt - now) : 0
    if (pauseMs > 0) await sleep(pauseMs, undefined, { signal: cli.signal }).catch(() => undefined)
    if (cli.signal.aborted) return
  }
}

export const stateCommands: readonly Command[] = [
  {
    words: 'state get',
    args: '<client_id>',
    tail: 'domain',
    summary: 'show what a client should be, and what it reports; --document for a named one',
    example: '<client_id>',
    flags: ['document'],
    columns: COLUMNS,
    call: VIEW,
  },
  {
    words: 'state set',
    args: '<client_id> <JSON_patch>',
    tail: 'domain',
    summary: 'change what is desired; a field that is null is removed',
    example: `<client_id> '{"firmware": "1.4"}'`,
    flags: ['document'],
    columns: COLUMNS,
    call: { ...VIEW, method: 'PATCH', body: (given) => jsonObject(given, 'JSON_patch') },
  },
  {
    words: 'state diff',
    args: '<client_id>',
    tail: 'domain',
    summary: 'show the part of what is desired that the client does not report',
    example: '<client_id>',
    flags: ['document'],
    usesDomainId: true,
    run: diff,
  },
  {
    words: 'state watch',
    args: '<client_id>',
    tail: 'domain',
    summary: 'show the state, and again after each change; --timeout ends it',
    example: '<client_id> --timeout 1s',
    flags: ['document', 'timeout'],
    usesDomainId: true,
    run: watch,
  },
]
