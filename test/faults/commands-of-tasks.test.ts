/**
 * Kills processes while users give commands that a task answers: no command that was acknowledged is lost, each has one run and ends once with the
 * result of that run, and a command that is cancelled meanwhile ends once as well. SKEIN_TEST_KILLS sets the number of kills.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
const CLIENTS = 6
/** Commands that are given between two kills, at least. */
const BETWEEN = 40
const DEADLINE_MS = 180_000
/** Longer than a start after a kill with the lease of the worker, so that no command times out. */
const TIMEOUT = '150s'
/** Each such number is cancelled right after it was given. */
const CANCELLED = 7
const PAGE = 100
const NAME = 'add'

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

type Setup = { token: string; domainId: string; taskId: string; clients: string[] }
type Command = { id: string; status: string; task_id?: string; payload: number[]; result?: unknown; reason?: string }

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.json<T>()
  }
  const credentials = { identity: 'admin', secret: 'the-first-admin' }
  const login = await json<{ access_token: string }>('/users/tokens/issue', credentials)
  const token = `Bearer ${login.access_token}`
  const { id: domainId } = await json<{ id: string }>('/domains', { name: 'commands' }, token)
  const file = readFileSync(join(import.meta.dirname, '../../examples/add/add.wasm')).toString('base64')
  const task = { name: 'add', domain_id: domainId, answers: { command: NAME }, retry: { max_attempts: 20 }, file }
  const { id: taskId } = await json<{ id: string }>('/tasks', task, token)
  const clients: string[] = []
  for (let count = 0; count < CLIENTS; count++)
    clients.push((await json<{ id: string }>(`/${domainId}/clients`, {}, token)).id)
  return { token, domainId, taskId, clients }
}

/** Users give each client one command after the other, each with a key until it is acknowledged, and cancel some of them. */
function give(whole: () => Whole, { domainId, token, clients }: Setup) {
  const given = new Map<string, number>()
  const faults: string[] = []
  let isOver = false
  const post = async (path: string, more: { body?: unknown; headers?: Record<string, string> } = {}) =>
    await whole()
      .call('POST', path, { authorization: token, ...more })
      .catch(() => undefined)
  async function user(client: string): Promise<void> {
    const path = `/${domainId}/clients/${client}/commands`
    for (let number = 0; !isOver; number++) {
      const body = { name: NAME, payload: [number, 1], timeout: TIMEOUT }
      for (;;) {
        const answer = await post(path, { body, headers: { 'idempotency-key': `n${number}` } })
        if (answer?.status === 201) {
          const { id } = answer.json<Command>()
          given.set(id, number)
          if (number % CANCELLED === 0) await post(`${path}/${id}/cancel`)
          break
        }
        // Too many are open: it is given later.
        if (answer !== undefined && answer.status < 500 && answer.status !== 422) faults.push(answer.text)
        await pause(20)
      }
      await pause(5)
    }
  }
  const loops = clients.map(user)
  return {
    given,
    faults,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

/** All commands of a client. */
async function listOf(whole: Whole, { domainId, token }: Setup, client: string): Promise<Command[]> {
  const commands: Command[] = []
  for (;;) {
    const path = `/${domainId}/clients/${client}/commands?limit=${PAGE}&offset=${commands.length}`
    const page = (await whole.call('GET', path, { authorization: token })).json<{ commands: Command[] }>()
    commands.push(...page.commands)
    if (page.commands.length < PAGE) return commands
  }
}

async function countEnds(whole: Whole, { domainId, token }: Setup, client: string): Promise<number> {
  let total = 0
  for (const operation of ['command.answer', 'command.expire', 'command.cancel']) {
    const path = `/${domainId}/journal/client/${client}?operation=${operation}`
    total += (await whole.call('GET', path, { authorization: token })).json<{ total: number }>().total
  }
  return total
}

test(
  'each command that a task answers has one run and one end',
  { timeout: DEADLINE_MS * 2 + KILLS * 30_000 },
  async () => {
    let whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const setup = await setUp(whole)
    const users = give(() => whole, setup)
    stack.defer(() => users.stop())
    for (let turn = 0; turn < KILLS; turn++) {
      const target = users.given.size + BETWEEN
      await until(
        () => users.given.size >= target,
        () => `commands between two kills: ${users.given.size} given`,
        DEADLINE_MS,
      )
      whole = await strike(installation, whole, turn)
    }
    await users.stop()
    const all = async () => (await Promise.all(setup.clients.map((client) => listOf(whole, setup, client)))).flat()
    const isOpen = ({ status }: Command) => status === 'queued' || status === 'delivered'
    await until(async () => !(await all()).some(isOpen), 'no command is open', DEADLINE_MS)

    expect(users.faults).toEqual([])
    const commands = new Map((await all()).map((command) => [command.id, command]))
    // One command for each key.
    expect(commands.size).toBe(users.given.size)
    const counts = { succeeded: 0, cancelled: 0 }
    for (const [id, number] of users.given) {
      const command = commands.get(id)
      expect(command, id).toMatchObject({ task_id: setup.taskId, payload: [number, 1] })
      if (command?.status === 'cancelled') {
        expect(number % CANCELLED).toBe(0)
        counts.cancelled += 1
        continue
      }
      expect(command, command?.reason).toMatchObject({ status: 'succeeded', result: number + 1 })
      counts.succeeded += 1
    }
    expect(counts.succeeded).toBeGreaterThan(KILLS * BETWEEN * 0.5)
    const ends = await Promise.all(setup.clients.map((client) => countEnds(whole, setup, client)))
    expect(ends.reduce((sum, count) => sum + count, 0)).toBe(commands.size)
    // A command that was cancelled before its run was started has none; each other one has a single run.
    const runs = (
      await whole.call('GET', `/runs?task_id=${setup.taskId}&limit=1`, { authorization: setup.token })
    ).json<{ total: number }>()
    expect(runs.total).toBeGreaterThanOrEqual(counts.succeeded)
    expect(runs.total).toBeLessThanOrEqual(commands.size)
  },
)
