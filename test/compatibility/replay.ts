/** Runs the steps of a case against a running platform: requests as clients send them, and what they read in the answers. */
import assert from 'node:assert'
import { randomInt } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { newestMail } from '../harness/mail.ts'
import { at, fill, fits } from './values.ts'
import type { Names } from './values.ts'

const DATA = join(import.meta.dirname, 'data')
const GIVEN = 'given.json'
/** Far above what a step takes, also on a busy machine. */
const UNTIL_DEADLINE_MS = 30_000
const REQUEST_DEADLINE_MS = 60_000
const PAUSE_MS = 50
/** What seven hexadecimal digits can say. */
const MAX_FRESH = 16 ** 7

type Json = Record<string, unknown>

export type Request = {
  method: string
  path: string
  service?: 'platform' | 'manager'
  headers?: Record<string, string>
  body?: unknown
  text?: string
  form?: Record<string, { name: string; base64?: string; text?: string }>
}

export type Answer = {
  status?: number | number[]
  headers?: Record<string, unknown>
  fields?: Json
  absent?: string[]
  text?: string
  begins?: string
}

export type Step =
  | string
  | {
      request?: Request
      status?: number | number[]
      save?: Record<string, string>
      until?: Json
      times?: number
      stop?: number[]
      set?: Record<string, string>
      base64?: Record<string, string>
      wait?: number
      mail?: string
      answer?: Answer
      within?: number
    }

export type Case = {
  name: string
  given?: Step[]
  request?: Request
  answer?: Answer
  then?: Step[]
  save?: Record<string, string>
  command?: string[]
  requests?: ExpectedRequest[]
  files?: Record<string, string>
  output?: string
  exit?: number
  source: string
}

export type ExpectedRequest = {
  method: string
  path: string | string[]
  headers?: Record<string, string>
  query?: Record<string, string>
  body?: unknown
}

export type Topic = {
  file: string
  about: string
  clients: string[]
  settings?: Record<string, string>
  alone?: boolean
  given?: Step[]
  cases: Case[]
}

const readJson = <T>(file: string) => JSON.parse(readFileSync(join(DATA, file), 'utf8')) as T
const shared = readJson<{ values: Json; steps: Record<string, Step[]> }>(GIVEN)

export const TOPICS: readonly Topic[] = readdirSync(DATA)
  .filter((file) => file.endsWith('.json') && file !== GIVEN)
  .toSorted()
  .map((file) => ({ ...readJson<Omit<Topic, 'file'>>(file), file }))

/** Where a case runs. */
export type Place = {
  platform: string
  manager: string
  dataDir: string
  admin: { username: string; secret: string }
}

type Received = { status: number; headers: Headers; bytes: Buffer; body: unknown }

let namesMade = randomInt(MAX_FRESH)

/** Eight characters that no other case of the process has: hundreds of cases share a platform. */
function freshName(): string {
  namesMade = (namesMade + 1) % MAX_FRESH
  return `f${namesMade.toString(16).padStart(7, '0')}`
}

export function newNames(place: Place): Names {
  return new Map<string, unknown>([
    ...Object.entries(shared.values),
    ['fresh', freshName()],
    ['adminUser', place.admin.username],
    ['adminSecret', place.admin.secret],
  ])
}

export async function runSteps(steps: readonly Step[], names: Names, place: Place): Promise<void> {
  for (const step of steps) {
    if (typeof step !== 'string') await runStep(step, names, place)
    else {
      const named = shared.steps[step]
      if (named === undefined) throw new Error(`no steps are called ${step}`)
      await runSteps(named, names, place)
    }
  }
}

async function runStep(step: Exclude<Step, string>, names: Names, place: Place): Promise<void> {
  for (const [name, text] of Object.entries(step.set ?? {})) names.set(name, fill(text, names))
  for (const [name, text] of Object.entries(step.base64 ?? {}))
    names.set(name, Buffer.from(String(fill(text, names))).toString('base64'))
  if (step.wait !== undefined) await pause(step.wait * 1000)
  if (step.mail !== undefined) await readMail(step.mail, step.save ?? {}, names, place)
  if (step.request === undefined) return
  const request = step.request
  if (step.times !== undefined) {
    for (let sent = 0; sent < step.times; sent++) {
      const { status } = await send(request, names, place)
      if (step.stop?.includes(status) === true) break
    }
    return
  }
  const check = (received: Received) => {
    if (step.status !== undefined) expectStatus(received, step.status)
    checkFields(received, step.until ?? {}, names)
    if (step.answer !== undefined) checkAnswer(received, step.answer, names)
  }
  const deadline = performance.now() + UNTIL_DEADLINE_MS
  const isRepeated = step.until !== undefined || step.within !== undefined
  for (;;) {
    const received = await send(request, names, place)
    try {
      check(received)
    } catch (error) {
      if (!isRepeated || performance.now() > deadline) throw error
      await pause(PAUSE_MS)
      continue
    }
    saveFrom(received, step.save ?? {}, names)
    return
  }
}

export async function runCase(topic: Topic, one: Case, place: Place): Promise<Names> {
  const names = newNames(place)
  await runSteps([...(topic.given ?? []), ...(one.given ?? [])], names, place)
  if (one.request !== undefined) {
    const received = await send(one.request, names, place)
    checkAnswer(received, one.answer ?? {}, names)
    saveFrom(received, one.save ?? {}, names)
    await runSteps(one.then ?? [], names, place)
  }
  return names
}

async function send(given: Request, names: Names, place: Place): Promise<Received> {
  const { method, path, service = 'platform', headers = {}, body, text, form } = fill(given, names)
  const sent = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]))
  let payload: RequestInit['body'] = null
  if (body !== undefined) {
    payload = JSON.stringify(body)
    if (!sent.has('content-type')) sent.set('content-type', 'application/json')
  } else if (text !== undefined) payload = new TextEncoder().encode(text)
  else if (form !== undefined) payload = formOf(form)
  const response = await fetch(`${place[service]}${path}`, {
    method,
    headers: [...sent],
    body: payload,
    redirect: 'manual',
    signal: AbortSignal.timeout(REQUEST_DEADLINE_MS),
  })
  const bytes = Buffer.from(await response.arrayBuffer())
  return { status: response.status, headers: response.headers, bytes, body: parsed(bytes) }
}

function formOf(fields: NonNullable<Request['form']>): FormData {
  const form = new FormData()
  for (const [field, { name, base64, text = '' }] of Object.entries(fields))
    form.append(field, new Blob([base64 === undefined ? text : Buffer.from(base64, 'base64')]), name)
  return form
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    return undefined
  }
}

const shown = ({ status, bytes }: Received) => `the answer was ${status} ${bytes.toString('utf8').slice(0, 600)}`

function expectStatus(received: Received, expected: number | number[]): void {
  assert([expected].flat().includes(received.status), `expected ${[expected].flat().join(' or ')}: ${shown(received)}`)
}

function checkFields(received: Received, fields: Json, names: Names): void {
  for (const [path, expected] of Object.entries(fill(fields, names))) {
    const actual = at(received.body, path)
    const text = `${path} is ${JSON.stringify(actual)} and not ${JSON.stringify(expected)}; ${shown(received)}`
    assert(fits(actual, expected), text)
  }
}

function checkAnswer(received: Received, answer: Answer, names: Names): void {
  if (answer.status !== undefined) expectStatus(received, answer.status)
  for (const [name, expected] of Object.entries(fill(answer.headers ?? {}, names))) {
    const actual = received.headers.get(name)
    const text = `header ${name} is ${JSON.stringify(actual)} and not ${JSON.stringify(expected)}; ${shown(received)}`
    assert(fits(actual, expected), text)
  }
  checkFields(received, answer.fields ?? {}, names)
  for (const path of answer.absent ?? [])
    assert(at(received.body, path) === undefined, `${path} is there; ${shown(received)}`)
  if (answer.text !== undefined)
    assert.match(received.bytes.toString('utf8'), new RegExp(fill(answer.text, names), 'u'), shown(received))
  if (answer.begins !== undefined) assert(received.bytes.toString('hex').startsWith(answer.begins), shown(received))
}

function saveFrom(received: Received, save: Record<string, string>, names: Names): void {
  for (const [name, from] of Object.entries(save)) {
    const value = from.startsWith('header ') ? received.headers.get(from.slice(7)) : at(received.body, from)
    assert(value !== undefined && value !== null, `there is no ${from}; ${shown(received)}`)
    names.set(name, value)
  }
}

/** The newest mail to an address: without an SMTP server, mails lie in the data folder. */
async function readMail(address: string, save: Record<string, string>, names: Names, place: Place): Promise<void> {
  const to = String(fill(address, names))
  const deadline = performance.now() + UNTIL_DEADLINE_MS
  for (;;) {
    const mail = newestMail(place.dataDir, to)
    if (mail !== undefined) {
      for (const [name, expression] of Object.entries(save)) {
        const found: string | undefined = new RegExp(expression, 'u').exec(mail)?.[1]
        assert(found !== undefined, `the mail has no ${expression}: ${mail}`)
        names.set(name, found)
      }
      return
    }
    assert(performance.now() < deadline, `no mail to ${to}`)
    await pause(PAUSE_MS)
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))
