/**
 * `npm run tour`: a first walk through a running Skein, to be read beside its output. Every step prints the curl line that
 * does the same. It talks HTTP like anybody else; SKEIN_URL and SKEIN_MANAGER_URL say where.
 */
import { readFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'

const BASE = (process.env['SKEIN_URL'] ?? 'http://127.0.0.1:8080').replace(/\/+$/, '')
const MANAGER = (process.env['SKEIN_MANAGER_URL'] ?? 'http://127.0.0.1:7070').replace(/\/+$/, '')
const MODULE = 'examples/add/add.wasm'
const REQUEST_DEADLINE_MS = 30_000

const isTerminal = process.stdout.isTTY
const paint = (code: number, text: string) => (isTerminal ? `\u001B[${code}m${text}\u001B[0m` : text)
const bold = (text: string) => paint(1, text)
const dim = (text: string) => paint(2, text)

type Call = {
  method: string
  url: string
  authorization?: string
  json?: unknown
  contentType?: string
  file?: string
  /** Secrets of the answer, by the shell variable that stands for each from then on: a path such as `credentials.secret`. */
  keep?: Record<string, string>
}

/** Secrets as shell variables, so that the printed lines can be copied and nothing secret stands on the screen. */
const variables = new Map<string, string>()

function hide(text: string): string {
  let shown = text
  for (const [name, value] of variables) shown = shown.replaceAll(value, `$${name}`)
  return shown
}

function asCurl({ method, url, authorization, json, contentType, file }: Call): string {
  const parts = ['curl', '-s', ...(method === 'GET' ? [] : ['-X', method])]
  if (authorization !== undefined) parts.push('-H', `"Authorization: ${hide(authorization)}"`)
  if (json !== undefined)
    parts.push('-H', `'Content-Type: ${contentType ?? 'application/json'}'`, '-d', `'${hide(JSON.stringify(json))}'`)
  if (file !== undefined) parts.push('-F', `file=@${file}`)
  return [...parts, url].join(' ')
}

/** Sends the request, prints it as curl and shows the answer; ends the tour with one line when it is refused. */
async function send(call: Call): Promise<unknown> {
  console.log(dim(`  $ ${asCurl(call)}`))
  const headers: Record<string, string> = {}
  if (call.authorization !== undefined) headers['Authorization'] = call.authorization
  let body: string | FormData | undefined
  if (call.json !== undefined) {
    headers['Content-Type'] = call.contentType ?? 'application/json'
    body = JSON.stringify(call.json)
  }
  if (call.file !== undefined) {
    body = new FormData()
    body.append('file', new Blob([readFileSync(join(import.meta.dirname, '..', call.file))]), 'module.wasm')
  }
  let response: Response
  try {
    response = await fetch(call.url, {
      method: call.method,
      headers,
      signal: AbortSignal.timeout(REQUEST_DEADLINE_MS),
      ...(body === undefined ? {} : { body }),
    })
  } catch {
    console.error(
      `\nNothing answers at ${new URL(call.url).origin}: start Skein with "npm start" in another terminal, or set SKEIN_URL and SKEIN_MANAGER_URL.`,
    )
    process.exit(1)
  }
  const text = await response.text()
  if (!response.ok) {
    console.error(`\nThe tour ends here: ${response.status} ${text}`)
    process.exit(1)
  }
  const answer: unknown = text === '' ? undefined : JSON.parse(text)
  for (const [name, path] of Object.entries(call.keep ?? {})) {
    variables.set(name, String(path.split('.').reduce((value, key) => (value as Record<string, unknown>)[key], answer)))
    console.log(dim(`    # ${name} is ${path} of the answer`))
  }
  console.log(`  ${bold(String(response.status))} ${shorten(hide(text))}\n`)
  return answer
}

const MAX_SHOWN_CHARS = 400

function shorten(text: string): string {
  return text.length > MAX_SHOWN_CHARS ? `${text.slice(0, MAX_SHOWN_CHARS)}…` : text
}

let steps = 0
function step(title: string, why: string): void {
  steps += 1
  console.log(`${bold(`${steps}. ${title}`)}\n  ${why}`)
}

const mark = randomUUID().slice(0, 8)
const password = `tour-${randomUUID()}`
variables.set('PASSWORD', password)

console.log('The curl lines below use shell variables for what is secret; PASSWORD is any password of your own.\n')

step('Register', 'Anybody may register (SKEIN_ALLOW_SELF_REGISTER).')
await send({
  method: 'POST',
  url: `${BASE}/users`,
  json: {
    first_name: `Ada ${mark}`,
    last_name: `Tour ${mark}`,
    email: `ada-${mark}@example.com`,
    credentials: { username: `ada-${mark}`, secret: password },
  },
})

step('Log in', 'The access token says who you are for an hour; what you may do is decided per request.')
const tokens = (await send({
  method: 'POST',
  url: `${BASE}/users/tokens/issue`,
  json: { identity: `ada-${mark}`, secret: password },
  keep: { TOKEN: 'access_token', REFRESH_TOKEN: 'refresh_token' },
})) as { access_token: string }
const bearer = `Bearer ${tokens.access_token}`

step('Create a domain', 'A domain is a tenant: whoever creates it administers it, and nobody else sees into it.')
const domain = (await send({
  method: 'POST',
  url: `${BASE}/domains`,
  authorization: bearer,
  json: { name: 'Tour', alias: `tour-${mark}` },
})) as { id: string }

step('Create a client', 'A client is a device or application; it authenticates with its secret.')
const client = (await send({
  method: 'POST',
  url: `${BASE}/${domain.id}/clients`,
  authorization: bearer,
  json: { name: 'thermometer' },
  keep: { CLIENT_SECRET: 'credentials.secret' },
})) as { id: string; credentials: { secret: string } }
const asClient = `Client ${client.credentials.secret}`

step('Create a channel', 'Clients talk over channels.')
const channel = (await send({
  method: 'POST',
  url: `${BASE}/${domain.id}/channels`,
  authorization: bearer,
  json: { name: 'readings' },
})) as { id: string }

step('Connect them', 'Only a connected client may publish to a channel or read from it.')
await send({
  method: 'POST',
  url: `${BASE}/${domain.id}/channels/connect`,
  authorization: bearer,
  json: { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] },
})

step('Send a measurement', 'A SenML pack (RFC 8428). 202 means: committed to the database, not merely received.')
await send({
  method: 'POST',
  url: `${BASE}/http/m/${domain.id}/c/${channel.id}`,
  authorization: asClient,
  contentType: 'application/senml+json',
  json: [
    { bn: 'some-base-name:', bt: 1.276020076e9, bu: 'A', bver: 5, n: 'voltage', u: 'V', v: 120.1 },
    { n: 'current', t: -5, v: 1.2 },
    { n: 'current', t: -4, v: 1.3 },
  ],
})

step('Read it back', 'Resolved records, newest first. What was answered with 202 is in the next read.')
await send({ method: 'GET', url: `${BASE}/m/${domain.id}/c/${channel.id}?limit=10`, authorization: asClient })

step('Create a task', 'A task is a WebAssembly module with inputs. It belongs to your domain.')
const task = (await send({
  method: 'POST',
  url: `${MANAGER}/tasks`,
  authorization: bearer,
  json: { name: 'add', inputs: [20, 22] },
})) as { id: string }

step('Upload its module', `${MODULE} exports add(i32, i32) -> i32; the answer lists what was found in it.`)
await send({ method: 'PUT', url: `${MANAGER}/tasks/${task.id}/upload`, authorization: bearer, file: MODULE })

step('Run it', 'A worker takes it, runs it in a sandbox, and its result is recorded exactly once. invoke waits for it.')
const outcome = (await send({
  method: 'POST',
  url: `${MANAGER}/tasks/${task.id}/invoke`,
  authorization: bearer,
  json: { inputs: [20, 22] },
})) as { results: number[]; duration_ms: number }

console.log(bold(`20 + 22 = ${outcome.results[0]}`))
console.log(
  `\nWhere to go from here: ${BASE}/docs shows the whole API, docs/ explains how it works, examples/ holds more modules.`,
)
