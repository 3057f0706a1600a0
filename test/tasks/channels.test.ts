// task-manager.md section 5 and section 1, Rights of a task: tasks meet channels
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTestPlatform } from './platform.ts'
import type { TestPlatform } from './platform.ts'
import { until } from './support.ts'

let platform: TestPlatform
let api: TestPlatform['api']
let owner: TestUser
let domain: string

beforeAll(async () => {
  platform = await startTestPlatform()
  api = platform.api
  owner = await api.newUser()
  domain = await newDomain(owner.call)
}, 60_000)

afterAll(() => platform.close())

const newDomain = (call: Caller) => platform.newDomain(call)
const newChannel = (call = owner.call, domainId = domain) => platform.newChannel(call, domainId)
const upload = (task: string, module: string, user = owner) => platform.upload(user, task, module)
const newTask = (fields: Record<string, unknown>, module?: string) => platform.newTask(owner, domain, fields, module)
const publish = (channel: string, records: unknown, subtopic?: string) =>
  platform.publish(owner.call, domain, channel, records, subtopic)

type Stored = { name: string; value: number; protocol: string; subtopic?: string; time: number }

async function stored(channel: string): Promise<Stored[]> {
  const read = await owner.call('GET', `/${domain}/channels/${channel}/messages?limit=1000&dir=asc`)
  expect(read.status, read.text).toBe(200)
  return read.json<{ messages: Stored[] }>().messages
}

type ShownRun = {
  id: string
  state: number
  kind: string
  results: unknown
  created_at: string
  finished_at: string
}

async function runsOf(task: string): Promise<ShownRun[]> {
  const page = await owner.call('GET', `/tasks/${task}/runs`)
  return page.json<{ runs: ShownRun[] }>().runs.toReversed()
}

const allEnded = async (task: string, count: number) =>
  await until(
    `${count} runs`,
    () => runsOf(task),
    (runs) => runs.filter(({ state }) => state >= 3 && state <= 6).length >= count,
  )

/** The task, as soon as so many were dropped. */
const untilDropped = async (task: string, count: number) =>
  await until(
    `${count} drops`,
    () => owner.call('GET', `/tasks/${task}`).then((answer) => answer.json<{ trigger_status: { dropped: number } }>()),
    ({ trigger_status: status }) => status.dropped === count,
  )

test('a message on the channel starts a run with its record, and the result is published to another channel once', async () => {
  const [from, to] = await Promise.all([newChannel(), newChannel()])
  const task = await newTask({
    inputs: [1000],
    trigger: { channel_id: from, subtopic: 'room', name: 'temperature', when: { comparator: 'gt', value: 20 } },
    publish_result: { channel_id: to, subtopic: 'alarms/room' },
  })
  await publish(from, [{ n: 'temperature', v: 19 }], 'room')
  await publish(from, [{ n: 'humidity', v: 90 }], 'room')
  await publish(from, [{ n: 'temperature', v: 50 }], 'roomy')
  await publish(from, [{ n: 'temperature', v: 21 }], 'room')
  await publish(from, [{ n: 'temperature', v: 22 }], 'room/corner')
  const runs = await allEnded(task, 2)
  // They run side by side: which of both ends first is left to chance.
  const [run] = runs.filter(({ results }) => (results as number[])[0] === 1021)
  expect(runs.map(({ results }) => (results as number[])[0] ?? 0).toSorted((one, other) => one - other)).toEqual([
    1021, 1022,
  ])
  const messages = await until(
    'the results',
    () => stored(to),
    (found) => found.length >= 2,
  )
  expect(messages.map(({ value }) => value ?? 0).toSorted((one, other) => one - other)).toEqual([1021, 1022])
  const message = messages.find(({ value }) => value === 1021)
  expect(message).toMatchObject({ name: 'add', protocol: 'task', subtopic: 'alarms.room' })
  expect(Math.abs((message?.time ?? 0) - Date.parse(run?.finished_at ?? '') / 1000)).toBeLessThan(0.01)
  const shown = (await owner.call('GET', `/tasks/${task}`)).json()
  expect(shown).toMatchObject({ state: 0, trigger_status: { matched: 2, dropped: 0, dropped_reason: null } })
  expect(await stored(to)).toHaveLength(2)
  // From the message to the run that it started, from there to the result, and back.
  type Linked = { value: number; message_id: string; run_id?: string; task_id?: string }
  const linked = async (channel: string) =>
    (await owner.call('GET', `/${domain}/channels/${channel}/messages?links=true&limit=100`)).json<{
      messages: Linked[]
    }>().messages
  const cause = (await linked(from)).find(({ value }) => value === 21)
  expect(cause).not.toHaveProperty('run_id')
  const started = (await owner.call('GET', `/runs?message=${cause?.message_id}`)).json<{ runs: { id: string }[] }>()
  expect(started.runs.map(({ id }) => id)).toEqual([run?.id])
  const result = (await linked(to)).find(({ value }) => value === 1021)
  expect(result).toMatchObject({ run_id: run?.id, task_id: task })
  const one = (await owner.call('GET', `/tasks/${task}/runs/${result?.run_id}`)).json<object>()
  expect(one).toMatchObject({ cause: { type: 'message', channel_id: from, message: cause?.message_id } })
  // Its inputs are the message, which a caller reads from the channel, with the right to.
  expect(one).not.toHaveProperty('inputs')
  // And from the run to what it published.
  const read = async (channel: string, query: string, headers?: Record<string, string>) =>
    await owner.call('GET', `/${domain}/channels/${channel}/messages?${query}`, undefined, headers)
  const values = async (query: string, channel = to) =>
    (await read(channel, query)).json<{ total: number; messages: { value: number }[] }>()
  expect(await values(`run=${run?.id}`)).toMatchObject({ total: 1, run: run?.id, messages: [{ value: 1021 }] })
  expect(await values(`run=${run?.id}&order=value&limit=1`)).toMatchObject({ total: 1, messages: [{ value: 1021 }] })
  expect(await values(`run=${run?.id}&name=other`)).toMatchObject({ total: 0, messages: [] })
  expect(await values(`run=${run?.id}&to=1700000000`)).toMatchObject({ total: 0 })
  expect(await values(`run=${run?.id}`, from)).toMatchObject({ total: 0 })
  expect(await values(`run=${randomUUID()}`)).toMatchObject({ total: 0, messages: [] })
  const span = `from=${(message?.time ?? 0) - 60}&to=${(message?.time ?? 0) + 60}`
  expect(await values(`run=${run?.id}&${span}&aggregation=count&interval=1h`)).toMatchObject({
    messages: [{ value: 1 }],
  })
  const lines = await read(to, `run=${run?.id}`, { accept: 'application/x-ndjson' })
  expect(
    lines.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown),
  ).toMatchObject([{ value: 1021 }])
  expect((await read(to, `run=${randomUUID()}`, { accept: 'application/x-ndjson' })).text).toBe('')
  // And from the run to the message that started it.
  const id = cause?.message_id ?? ''
  expect(await values(`message=${id}`, from)).toMatchObject({ total: 1, message: id, messages: [{ value: 21 }] })
  for (const query of ['run=latest', `run=${run?.id}&format=json`])
    expect((await read(to, query)).json(), query).toMatchObject({ error: 'malformed', details: [{ path: 'run' }] })
  expect((await owner.call('GET', `/m/${domain}/c/${to}/latest?run=${run?.id}`)).status).toBe(400)
  expect((await owner.call('DELETE', `/${domain}/channels/${to}/messages?run=${run?.id}&from=0`)).status).toBe(400)
})

test('a function of numbers runs once for each record of a message', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [1], trigger: { channel_id: from } })
  await publish(from, [
    { n: 'a', v: 1 },
    { n: 'b', v: 2 },
    { n: 'c', v: 3 },
  ])
  const runs = await allEnded(task, 3)
  expect(runs.map(({ results }) => (results as number[])[0] ?? 0).toSorted((left, right) => left - right)).toEqual([
    2, 3, 4,
  ])
})

test('the runs of one message are started together, not one after the other', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [1], trigger: { channel_id: from } })
  const count = 50
  await publish(
    from,
    Array.from({ length: count }, (_, index) => ({ n: `record-${index}`, v: index })),
  )
  const runs = await allEnded(task, count)
  expect(runs).toHaveLength(count)
  // The time of a run is that of the transaction which it was written in.
  expect(new Set(runs.map((run) => run.created_at)).size).toBeLessThanOrEqual(count / 2)
})

test('a record that does not match the function is dropped, counted and reported', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [1], trigger: { channel_id: from } })
  await publish(from, [{ n: 'a', vs: 'text' }])
  const shown = await untilDropped(task, 1)
  expect(shown).toMatchObject({ trigger_status: { dropped_reason: expect.stringContaining('no number') as string } })
  expect(await runsOf(task)).toEqual([])
})

test('a record that does not match the function does not prevent the other runs of its message', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [1], trigger: { channel_id: from } })
  await publish(from, [
    { n: 'a', vs: 'text' },
    { n: 'b', v: 2 },
    { n: 'c', vs: 'text' },
    { n: 'd', v: 4 },
  ])
  const runs = await allEnded(task, 2)
  expect(runs.map(({ results }) => (results as number[])[0] ?? 0).toSorted((left, right) => left - right)).toEqual([
    3, 5,
  ])
  await untilDropped(task, 2)
})

test('messages that the debounce replaces are not counted by the rate limit', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [0], trigger: { channel_id: from, debounce: '3s', rate_limit: '1/1h' } })
  for (const v of [1, 2, 3, 4, 5]) await publish(from, [{ n: 'a', v }])
  expect((await allEnded(task, 1)).map(({ results }) => results)).toEqual([[5]])
  await publish(from, [{ n: 'a', v: 6 }])
  await untilDropped(task, 1)
  expect(await runsOf(task)).toHaveLength(1)
})

test('the debounce replaces no message that a manager has taken', async () => {
  const from = await newChannel()
  const task = await newTask({ inputs: [0], trigger: { channel_id: from, debounce: '20s' } })
  const keys = async () => {
    const { rows } = await sql<{
      key: string
    }>`SELECT m.key::text AS key FROM task_messages m JOIN tasks t ON t.key = m.task_key
      WHERE t.id = ${task} ORDER BY m.key`.execute(api.database.db)
    return rows.map(({ key }) => key)
  }
  await publish(from, [{ n: 'a', v: 1 }])
  const [taken] = await until('the first message waits', keys, ({ length }) => length === 1)
  // A message that was taken is due again later than its debounce, in case the manager does not come back.
  await sql`UPDATE task_messages SET due_at = created_at + interval '30 s' WHERE key = ${taken}::bigint`.execute(
    api.database.db,
  )
  await publish(from, [{ n: 'a', v: 2 }])
  const waiting = await until('the second message waits', keys, (now) => now.at(-1) !== taken)
  expect(waiting).toEqual([taken, waiting.at(-1)])
  expect((await owner.call('DELETE', `/tasks/${task}`)).status).toBe(204)
})

test('rate_limit limits the runs, and debounce uses the last message', async () => {
  const from = await newChannel()
  const limited = await newTask({ inputs: [0], trigger: { channel_id: from, rate_limit: '2/1h' } })
  // Longer than a busy machine takes between two of the messages.
  const debounced = await newTask({ inputs: [0], trigger: { channel_id: from, debounce: '3s' } })
  for (const v of [1, 2, 3, 4, 5]) await publish(from, [{ n: 'a', v }])
  expect((await allEnded(debounced, 1)).map(({ results }) => results)).toEqual([[5]])
  await allEnded(limited, 2)
  const shown = await untilDropped(limited, 3)
  expect(shown).toMatchObject({ trigger_status: { matched: 5, dropped_reason: 'rate_limit' } })
  expect(await runsOf(limited)).toHaveLength(2)
  expect(await runsOf(debounced)).toHaveLength(1)
})

test('results of a task do not start the task itself', async () => {
  const channel = await newChannel()
  const task = await newTask({
    inputs: [1],
    trigger: { channel_id: channel },
    publish_result: { channel_id: channel },
  })
  await publish(channel, [{ n: 'a', v: 1 }])
  await until(
    'the result',
    () => stored(channel),
    (messages) => messages.length === 2,
  )
  await publish(channel, [{ n: 'a', v: 2 }])
  await allEnded(task, 2)
  expect(await runsOf(task)).toHaveLength(2)
})

test('results of other tasks start a task that publishes to the same channel under another subtopic', async () => {
  const channel = await newChannel()
  const other = await newChannel()
  const task = await newTask({
    inputs: [1],
    trigger: { channel_id: channel },
    publish_result: { channel_id: channel, subtopic: 'sums' },
  })
  await newTask({
    inputs: [10],
    trigger: { channel_id: other },
    publish_result: { channel_id: channel, subtopic: 'tens' },
  })
  await publish(other, [{ n: 'a', v: 1 }])
  expect((await allEnded(task, 1)).map(({ results }) => results)).toEqual([[12]])
})

test('a replay runs the task for every stored record once, the oldest first', async () => {
  const channel = await newChannel()
  const values = Array.from({ length: 450 }, (_, index) => ({ n: 'a', v: index, t: 1_700_000_000 + index }))
  await publish(channel, values)
  const task = await newTask({ inputs: [0] })
  const body = { channel_id: channel, from: 1_700_000_000, to: 1_700_000_400 }
  const started = await owner.call('POST', `/tasks/${task}/replay`, body)
  expect(started.status, started.text).toBe(202)
  const total = async () => (await owner.call('GET', `/tasks/${task}/runs?limit=1`)).json<{ total: number }>().total
  await until('all runs', total, (count) => count >= 400, 40_000)
  await until(
    'the end of the replay',
    () => api.database.pool.query('SELECT 1 FROM task_replays').then(({ rowCount }) => rowCount),
    (open) => open === 0,
  )
  expect(await total()).toBe(400)
  const { rows } = await api.database.pool.query(
    `SELECT sum((r.spec -> 'inputs' ->> 0)::int) AS sum FROM runs r JOIN tasks t ON t.key = r.task_key WHERE t.id = $1`,
    [task],
  )
  expect(Number(rows[0]?.sum)).toBe((399 * 400) / 2)
})

test('a replay neither skips nor repeats records while records are added and removed before it', async () => {
  const channel = await newChannel()
  const at = 1_700_000_000
  // Some of one time, across the end of a page.
  const times = Array.from({ length: 900 }, (_, index) => at + (index < 150 ? index : index < 450 ? 150 : index - 300))
  await publish(
    channel,
    times.map((t, index) => ({ n: `n${index}`, v: index, t })),
  )
  const task = await newTask({ inputs: [0] })
  await owner.call('POST', `/tasks/${task}/replay`, { channel_id: channel, from: at, to: at + 1000 })
  const total = async () => (await owner.call('GET', `/tasks/${task}/runs?limit=1`)).json<{ total: number }>().total
  await until('the first runs', total, (count) => count >= 200, 40_000)
  await publish(
    channel,
    Array.from({ length: 20 }, (_, index) => ({ n: 'late', v: 0, t: at + 0.5 + index })),
  )
  expect((await owner.call('DELETE', `/${domain}/channels/${channel}/messages?from=${at}&to=${at + 10}`)).status).toBe(
    204,
  )
  await until(
    'the end of the replay',
    () => api.database.pool.query('SELECT 1 FROM task_replays').then(({ rowCount }) => rowCount),
    (open) => open === 0,
    40_000,
  )
  await until('all runs', total, (count) => count >= 900, 40_000)
  expect(await total()).toBe(900)
})

const CHANNEL_FIELDS: [string, (channel: string) => Record<string, unknown>][] = [
  ['trigger', (channel) => ({ trigger: { channel_id: channel } })],
  ['publish_result', (channel) => ({ publish_result: { channel_id: channel } })],
  ['a grant to publish', (channel) => ({ grants: [{ kind: 'publish', channel_id: channel }] })],
  ['a grant to read', (channel) => ({ grants: [{ kind: 'read', channel_id: channel }] })],
]

test.each(CHANNEL_FIELDS)('%s requires the right on the channel when it is written', async (_name, field) => {
  const stranger = await api.newUser()
  const theirs = await newDomain(stranger.call)
  const foreign = await newChannel(stranger.call, theirs)
  for (const channel of [foreign, randomUUID()]) {
    const created = await owner.call('POST', '/tasks', { name: 'x', domain_id: domain, ...field(channel) })
    expect(created.status, created.text).toBe(403)
  }
  const task = await newTask({})
  expect((await owner.call('PUT', `/tasks/${task}`, field(foreign))).status).toBe(403)
  const anonymous = await api.anonymous('POST', '/tasks', { name: 'x', ...field(foreign) })
  expect(anonymous.status).toBe(401)
  expect(anonymous.text).toContain('requires a token')
})

test('a task whose user was disabled pauses at once, and continues with its message when they are enabled', async () => {
  const member = await api.newUser()
  const theirs = await newDomain(member.call)
  const [from, to] = [await newChannel(member.call, theirs), await newChannel(member.call, theirs)]
  const made = await member.call('POST', '/tasks', {
    name: 'add',
    domain_id: theirs,
    inputs: [1],
    trigger: { channel_id: from },
    publish_result: { channel_id: to },
  })
  const task = made.json<{ id: string }>().id
  expect((await upload(task, 'add', member)).status).toBe(200)
  // The only administrator of a domain is not disabled over HTTP.
  const setStatus = async (status: string) =>
    await api.database.pool.query(`UPDATE users SET status = $2 WHERE id = $1`, [member.id, status])
  await setStatus('disabled')
  const type = { 'content-type': 'application/senml+json' }
  expect((await api.admin('POST', `/m/${theirs}/c/${from}`, [{ n: 'a', v: 1 }], type)).status).toBe(202)
  const shown = await until(
    'the pause',
    () => api.admin('GET', `/tasks/${task}`).then((answer) => answer.json<{ activity: string }>()),
    ({ activity }) => activity === 'paused',
  )
  expect(shown).toMatchObject({
    trigger_status: { dropped: 0 },
    last_error: { source: 'right', reason: expect.stringContaining('disabled') as string },
  })
  await setStatus('enabled')
  const read = await until(
    'the result',
    () =>
      api.admin('GET', `/${theirs}/channels/${to}/messages`).then((answer) => answer.json<{ messages: Stored[] }>()),
    ({ messages }) => messages.length > 0,
  )
  expect(read.messages).toMatchObject([{ value: 2, protocol: 'task' }])
})

test('secrets are stored encrypted, shown redacted, and kept when they are written back redacted', async () => {
  const task = await newTask({ secrets: { TOKEN: 'very-secret-value', OTHER: 'o' } }, 'hello')
  const shown = await owner.call('GET', `/tasks/${task}`)
  expect(shown.json()).toMatchObject({ secrets: { OTHER: '[redacted]', TOKEN: '[redacted]' } })
  await owner.call('PUT', `/tasks/${task}`, { secrets: { TOKEN: '[redacted]', OTHER: 'changed' } })
  await owner.call('POST', `/tasks/${task}/start`)
  await allEnded(task, 1)
  const { rows } = await api.database.pool.query(
    `SELECT row_to_json(t)::text || r.spec::text AS text FROM tasks t
    JOIN runs r ON r.task_key = t.key WHERE t.id = $1`,
    [task],
  )
  expect(String(rows[0]?.text)).not.toContain('very-secret-value')
  expect(String(rows[0]?.text)).not.toContain('changed')
  expect((await owner.call('GET', '/tasks?limit=100')).text).not.toContain('very-secret-value')
  await owner.call('PUT', `/tasks/${task}`, { secrets: null })
  expect((await owner.call('GET', `/tasks/${task}`)).json()).toMatchObject({ secrets: {} })
  expect((await api.anonymous('POST', '/tasks', { name: 'x', secrets: { A: 'b' } })).status).toBe(401)
})

test.each([
  [{ trigger: { channel_id: 'nonsense' } }, '/trigger/channel_id'],
  [{ trigger: { channel_id: randomUUID(), when: { comparator: 'near', value: 1 } } }, 'comparator'],
  [{ trigger: { channel_id: randomUUID(), debounce: '2h' } }, '/trigger/debounce'],
  [{ trigger: { channel_id: randomUUID(), rate_limit: '10' } }, '/trigger/rate_limit'],
  [{ trigger: { channel_id: randomUUID(), rate_limit: '0/1m' } }, '/trigger/rate_limit'],
  [{ trigger: { channel_id: randomUUID(), subtopic: 'a/#' } }, '/trigger/subtopic'],
  [{ publish_result: { channel_id: randomUUID(), subtopic: 'a//b' } }, '/publish_result/subtopic'],
  [{ grants: [{ kind: 'write', channel_id: randomUUID() }] }, 'kind'],
  [{ secrets: { A: 1 } }, 'secrets'],
])('%j is 400 with the name of the field', async (fields, path) => {
  const refused = await owner.call('POST', '/tasks', { name: 'x', domain_id: domain, ...fields })
  expect(refused.status, refused.text).toBe(400)
  expect(refused.text).toContain(path)
})

test('every run has its cause, and is found by its cause, its task, its state and its time', async () => {
  const [from, to] = await Promise.all([newChannel(), newChannel()])
  const task = await newTask({ inputs: [1], trigger: { channel_id: from }, publish_result: { channel_id: to } })
  const plain = await newTask({ inputs: [1, 2] })
  await publish(from, [{ n: 'a', v: 1, t: 1_700_000_000 }])
  await allEnded(task, 1)
  await owner.call('POST', `/tasks/${task}/replay`, { channel_id: from, from: 1_700_000_000, to: 1_700_000_001 })
  await allEnded(task, 2)
  expect((await owner.call('POST', `/tasks/${plain}/start`)).status).toBe(200)
  await allEnded(plain, 1)
  expect((await owner.call('POST', `/tasks/${plain}/invoke`, { inputs: [3, 4] })).status).toBe(200)
  type Found = ShownRun & { task_id: string; domain_id: string; cause: Record<string, string> }
  const find = async (query: string, call = owner.call): Promise<{ total: number; runs: Found[] }> => {
    const answer = await call('GET', `/runs?domain_id=${domain}&${query}`)
    expect(answer.status, answer.text).toBe(200)
    return answer.json()
  }
  const [ofMessage] = (await find(`task_id=${task}&cause=message`)).runs
  expect(ofMessage).toMatchObject({ task_id: task, domain_id: domain, cause: { type: 'message', channel_id: from } })
  // From the message to its runs, and from a run to its message.
  const message = ofMessage?.cause['message'] ?? ''
  expect((await find(`message=${message}`)).runs.map(({ id }) => id)).toEqual([ofMessage?.id])
  expect((await find(`channel_id=${from}`)).total).toBe(2)
  const [ofReplay] = (await find(`task_id=${task}&cause=replay`)).runs
  expect(ofReplay?.cause).toMatchObject({ type: 'replay', channel_id: from })
  expect((await find(`replay_id=${ofReplay?.cause['replay_id']}`)).total).toBe(1)
  const ofUser = await find(`cause=user&user_id=${owner.id}&task_id=${plain}`)
  expect(ofUser.runs.map(({ kind, cause }) => [kind, cause])).toEqual([
    ['invoke', { type: 'user', user_id: owner.id }],
    ['start', { type: 'user', user_id: owner.id }],
  ])
  // The runs of the task have the same causes, and one page follows another.
  expect((await runsOf(plain)).map((run) => (run as Found).cause['type'])).toEqual(['user', 'user'])
  expect((await find(`task_id=${plain}&limit=1&offset=1`)).runs[0]?.kind).toBe('start')
  expect((await find(`task_id=${plain}&state=3`)).total).toBe(2)
  expect((await find(`task_id=${plain}&state=4,6`)).total).toBe(0)
  expect((await find(`task_id=${plain}&to=1000`)).total).toBe(0)
  expect((await find(`task_id=${plain}&from=1000`)).total).toBe(2)
  expect((await find(`task_id=${plain}&worker_id=${randomUUID()}`)).total).toBe(0)
  expect((await find(`task_id=${plain}&reason=timeout`)).total).toBe(0)
  // A cursor goes on where a page ended, in the order of one domain and in that of all, and with no other listing.
  for (const query of [`domain_id=${domain}`, `task_id=${plain}`]) {
    const page = async (more: string) => {
      const answer = await owner.call('GET', `/runs?${query}&limit=1${more}`)
      expect(answer.status, answer.text).toBe(200)
      return answer.json<{ next?: string; runs: { id: string }[] }>()
    }
    const seen: string[] = []
    let { next, runs } = await page('')
    while (runs.length > 0 && seen.length < 100) {
      seen.push(...runs.map(({ id }) => id))
      if (next === undefined) break
      ;({ next, runs } = await page(`&cursor=${next}`))
    }
    const all = (await owner.call('GET', `/runs?${query}&limit=100`)).json<{ runs: { id: string }[] }>()
    expect(seen).toEqual(all.runs.map(({ id }) => id))
    const cursor = (await page('')).next
    for (const wrong of [`cursor=${cursor}&offset=1`, 'cursor=here', `cursor=x${cursor}`])
      expect((await owner.call('GET', `/runs?${query}&${wrong}`)).status, wrong).toBe(400)
  }
  for (const query of ['state=9', 'cause=moon', 'task_id=x', 'message=1', 'reason=bored'])
    expect((await owner.call('GET', `/runs?${query}`)).status, query).toBe(400)
  const stranger = await api.newUser()
  expect((await stranger.call('GET', `/runs?domain_id=${domain}`)).status).toBe(403)
  expect((await stranger.call('GET', `/runs?task_id=${plain}`)).json()).toMatchObject({ total: 0, runs: [] })

  const tasks = async (query: string) =>
    (await owner.call('GET', `/tasks?domain_id=${domain}&${query}`))
      .json<{ tasks: { id: string }[] }>()
      .tasks.map(({ id }) => id)
  expect(await tasks(`channel_id=${from}`)).toEqual([task])
  expect(await tasks(`channel_id=${to}`)).toEqual([task])
  expect(await tasks('trigger=true')).toContain(task)
  expect(await tasks('trigger=false')).toContain(plain)
  expect(await tasks('trigger=false')).not.toContain(task)
  expect((await stranger.call('GET', `/tasks?domain_id=${domain}`)).status).toBe(403)
})

test('a run of a workflow names it, and workflows are found by the channels of their tasks', async () => {
  const to = await newChannel()
  const made = await owner.call('POST', '/workflows', {
    name: 'flow',
    domain_id: domain,
    tasks: [{ name: 'add', inputs: [1, 2], publish_result: { channel_id: to } }],
  })
  expect(made.status, made.text).toBe(201)
  const { id, tasks } = made.json<{ id: string; tasks: { id: string }[] }>()
  expect((await upload(tasks[0]?.id ?? '', 'add')).status).toBe(200)
  const started = (await owner.call('POST', `/workflows/${id}/start`)).json<{ run_id: string }>()
  await allEnded(tasks[0]?.id ?? '', 1)
  const found = (await owner.call('GET', `/runs?workflow_id=${id}`)).json<{ runs: { cause: unknown }[] }>()
  expect(found.runs.map(({ cause }) => cause)).toEqual([
    { type: 'workflow', workflow_id: id, workflow_run_id: started.run_id },
  ])
  const ids = async (query: string) =>
    (await owner.call('GET', `/workflows?${query}`))
      .json<{ workflows: { id: string }[] }>()
      .workflows.map((one) => one.id)
  expect(await ids(`domain_id=${domain}&channel_id=${to}`)).toEqual([id])
  expect(await ids(`channel_id=${randomUUID()}`)).toEqual([])
  expect(await ids('trigger=true')).not.toContain(id)
  expect(await ids('trigger=false')).toContain(id)
})
