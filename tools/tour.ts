/**
 * `npm run tour`: a tutorial against a running Skein. Every step prints the equivalent curl line. It uses only the public
 * HTTP API; SKEIN_URL and SKEIN_MANAGER_URL set the addresses.
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
  /**
   * Secrets of the answer, by the shell variable that replaces each of them later: a path such as `credentials.secret`.
   */
  keep?: Record<string, string>
}

/** Secrets as shell variables, so that the printed lines can be copied and no secret is printed. */
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
    parts.push('-H', `'Content-Type: ${contentType ?? 'application/json'}'`, '-d', quote(hide(JSON.stringify(json))))
  if (file !== undefined) parts.push('-F', `file=@${file}`)
  return [...parts, /[?&]/.test(url) ? quote(url) : url].join(' ')
}

/** Quotes a word for the shell; double quotes around a variable. */
function quote(text: string): string {
  return text.includes('$') ? `"${text.replaceAll(/["\\`]/g, '\\$&')}"` : `'${text}'`
}

/** Sends the request, prints it as curl and shows the answer; ends the tour with one line if it fails. */
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
  } catch (error) {
    const { origin } = new URL(call.url)
    console.error(
      isUntrusted(error)
        ? `\nThe certificate of ${origin} is signed by an unknown authority. If it is Skein's own authority, download its certificate:\n  curl -sk '${BASE}/certs/download-ca?format=pem' > ca.crt\nand run the tour again with NODE_EXTRA_CA_CERTS=ca.crt`
        : `\nCannot connect to ${origin}: start Skein with "npm start" in another terminal, or set SKEIN_URL and SKEIN_MANAGER_URL.`,
    )
    process.exit(1)
  }
  const answered = await response.text()
  if (!response.ok) {
    console.error(`\nThe tour failed: ${response.status} ${answered}`)
    process.exit(1)
  }
  const answer: unknown = answered === '' ? undefined : JSON.parse(answered)
  for (const [name, path] of Object.entries(call.keep ?? {})) {
    variables.set(name, String(path.split('.').reduce((value, key) => (value as Record<string, unknown>)[key], answer)))
    console.log(dim(`    # ${name} is ${path} of the answer`))
  }
  console.log(`  ${bold(String(response.status))} ${shorten(hide(answered))}\n`)
  return answer
}

/** TLS failed because of an unknown authority. */
function isUntrusted(error: unknown): boolean {
  const { cause } = error as { cause?: { code?: unknown } }
  return typeof cause?.code === 'string' && /SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY)/.test(cause.code)
}

const MAX_SHOWN_CHARS = 400

function shorten(text: string): string {
  return text.length > MAX_SHOWN_CHARS ? `${text.slice(0, MAX_SHOWN_CHARS)}…` : text
}

/** Waits for a promise of a socket or stream; ends the tour with one line after the deadline. */
async function inTime<T>(promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new Error(`no ${what} within ${REQUEST_DEADLINE_MS / 1000} s`)),
      REQUEST_DEADLINE_MS,
    )
  })
  try {
    return await Promise.race([promise, late])
  } catch (error) {
    console.error(`\nThe tour failed: ${(error as Error).message}`)
    process.exit(1)
  } finally {
    clearTimeout(timer)
  }
}

/**
 * A socket on a channel; resolves `next` with its next message. Browsers cannot set headers, so the credentials are in
 * the query.
 */
async function openSocket(url: string, authorization: string): Promise<{ next: Promise<string>; close: () => void }> {
  console.log(dim(`  $ websocat ${quote(`${url}?authorization=${hide(authorization).replaceAll(' ', '%20')}`)}`))
  const socket = new WebSocket(`${url}?authorization=${encodeURIComponent(authorization)}`)
  const next = new Promise<string>((resolve, reject) => {
    socket.addEventListener('message', ({ data }) => void textOf(data).then(resolve, reject))
    socket.addEventListener('error', () => reject(new Error(`no WebSocket at ${url}`)))
    socket.addEventListener('close', ({ reason }) => reject(new Error(`the socket was closed: ${reason}`)))
  })
  next.catch(() => undefined)
  await inTime(Promise.race([new Promise((resolve) => socket.addEventListener('open', resolve)), next]), 'open socket')
  return { next, close: () => socket.close() }
}

/** Server-sent events; resolves `next` with the data of the next one. */
async function openEvents(url: string, authorization: string): Promise<{ next: Promise<string>; close: () => void }> {
  console.log(dim(`  $ curl -s -N -H "Authorization: ${hide(authorization)}" ${url}`))
  const stopping = new AbortController()
  const response = await inTime(
    fetch(url, { headers: { Authorization: authorization }, signal: stopping.signal }),
    'stream',
  )
  const read = async (): Promise<string> => {
    let seen = ''
    for await (const chunk of response.body ?? []) {
      seen += Buffer.from(chunk).toString('utf8')
      const data = /^data: (.*)\n/m.exec(seen)?.[1]
      if (data !== undefined) return data
    }
    throw new Error(`the stream ended: ${seen}`)
  }
  const next = read()
  next.catch(() => undefined)
  return { next, close: () => stopping.abort() }
}

async function textOf(data: unknown): Promise<string> {
  return data instanceof Blob ? await data.text() : String(data)
}

let steps = 0
function step(title: string, why: string): void {
  steps += 1
  console.log(`${bold(`${steps}. ${title}`)}\n  ${why}`)
}

const mark = randomUUID().slice(0, 8)
const password = `tour-${randomUUID()}`
variables.set('PASSWORD', password)

console.log('The curl lines below use shell variables for secrets; PASSWORD is a password of your choice.\n')

step('Register', 'Registration is open to everyone (SKEIN_ALLOW_SELF_REGISTER).')
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

step('Log in', 'The access token identifies you for an hour; permissions are checked at every request.')
const tokens = (await send({
  method: 'POST',
  url: `${BASE}/users/tokens/issue`,
  json: { identity: `ada-${mark}`, secret: password },
  keep: { TOKEN: 'access_token', REFRESH_TOKEN: 'refresh_token' },
})) as { access_token: string }
const bearer = `Bearer ${tokens.access_token}`

step(
  'Create a domain',
  'A domain is a tenant: its creator becomes its administrator, and other users cannot see into it.',
)
const domain = (await send({
  method: 'POST',
  url: `${BASE}/domains`,
  authorization: bearer,
  json: { name: 'Tour', alias: `tour-${mark}` },
})) as { id: string }

step('Create a group', 'Groups form a tree; a role on a group applies to everything in it and below it.')
const group = (await send({
  method: 'POST',
  url: `${BASE}/${domain.id}/groups`,
  authorization: bearer,
  json: { name: 'hall' },
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

step('Create a channel', 'Clients exchange messages over channels. This one is in the group.')
const channel = (await send({
  method: 'POST',
  url: `${BASE}/${domain.id}/channels`,
  authorization: bearer,
  json: { name: 'readings', parent_group_id: group.id },
})) as { id: string }

step('Connect them', 'Only a connected client can publish to a channel or read from it.')
await send({
  method: 'POST',
  url: `${BASE}/${domain.id}/channels/connect`,
  authorization: bearer,
  json: { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] },
})

step('Follow the channel', 'Live, as server-sent events and over a WebSocket, which also publishes what you type.')
const events = await openEvents(`${BASE}/m/${domain.id}/c/${channel.id}/live`, bearer)
const socket = await openSocket(`${BASE.replace(/^http/, 'ws')}/m/${domain.id}/c/${channel.id}`, bearer)
console.log('')

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

console.log(`  ${bold('event')}  ${shorten(await inTime(events.next, 'event'))}`)
console.log(`  ${bold('socket')} ${shorten(await inTime(socket.next, 'frame'))}\n`)
events.close()
socket.close()

step('Read it back', 'Resolved records, newest first. A message that was answered with 202 is in the next read.')
await send({ method: 'GET', url: `${BASE}/m/${domain.id}/c/${channel.id}?limit=10`, authorization: asClient })

step(
  'Create a role',
  'A role is a named list of actions on a domain, group, client or channel. This one can read the entities of the domain.',
)
const role = (await send({
  method: 'POST',
  url: `${BASE}/domains/${domain.id}/roles`,
  authorization: bearer,
  json: { role_name: 'watcher', optional_actions: ['read', 'client_read', 'channel_read', 'channel_subscribe'] },
})) as { id: string }

step('Invite a user', 'Ben registers, is invited to the role and accepts. Other actions are refused for them.')
const ben = (await send({
  method: 'POST',
  url: `${BASE}/users`,
  json: {
    first_name: `Ben ${mark}`,
    last_name: `Guest ${mark}`,
    email: `ben-${mark}@example.com`,
    credentials: { username: `ben-${mark}`, secret: password },
  },
})) as { id: string }
await send({
  method: 'POST',
  url: `${BASE}/domains/${domain.id}/invitations`,
  authorization: bearer,
  json: { invitee_user_id: ben.id, role_id: role.id },
})
const bensTokens = (await send({
  method: 'POST',
  url: `${BASE}/users/tokens/issue`,
  json: { identity: `ben-${mark}`, secret: password },
  keep: { BENS_TOKEN: 'access_token', BENS_REFRESH_TOKEN: 'refresh_token' },
})) as { access_token: string }
const asBen = `Bearer ${bensTokens.access_token}`
await send({
  method: 'POST',
  url: `${BASE}/invitations/accept`,
  authorization: asBen,
  json: { domain_id: domain.id },
})
await send({ method: 'GET', url: `${BASE}/${domain.id}/channels/${channel.id}/permissions`, authorization: asBen })

step(
  'Create a token for a program',
  'A personal access token allows only actions in its scopes that you are allowed too. It starts without scopes.',
)
const pat = (await send({
  method: 'POST',
  url: `${BASE}/pats`,
  authorization: bearer,
  json: { name: 'dashboard', duration: '24h' },
  keep: { PAT: 'secret' },
})) as { id: string; secret: string }
await send({
  method: 'PATCH',
  url: `${BASE}/pats/${pat.id}/scope/add`,
  authorization: bearer,
  json: {
    scopes: [{ optional_domain_id: domain.id, entity_type: 'messages', entity_id: channel.id, operation: 'subscribe' }],
  },
})
await send({
  method: 'GET',
  url: `${BASE}/m/${domain.id}/c/${channel.id}?limit=1`,
  authorization: `Bearer ${pat.secret}`,
})

step('Read the journal', 'Every change is in the journal, and is published as an event of the domain.')
await send({
  method: 'GET',
  url: `${BASE}/${domain.id}/journal/domain/${domain.id}?limit=5`,
  authorization: bearer,
})

step('Create a task', 'A task is a WebAssembly module with inputs. It belongs to your domain.')
const task = (await send({
  method: 'POST',
  url: `${MANAGER}/tasks`,
  authorization: bearer,
  json: { name: 'add', inputs: [20, 22] },
})) as { id: string }

step('Upload its module', `${MODULE} exports add(i32, i32) -> i32; the answer lists its exports.`)
await send({ method: 'PUT', url: `${MANAGER}/tasks/${task.id}/upload`, authorization: bearer, file: MODULE })

step('Run it', 'A worker runs it in a sandbox, and its result is recorded exactly once. invoke waits for the result.')
const outcome = (await send({
  method: 'POST',
  url: `${MANAGER}/tasks/${task.id}/invoke`,
  authorization: bearer,
  json: { inputs: [20, 22] },
})) as { results: number[]; duration_ms: number }

console.log(bold(`20 + 22 = ${outcome.results[0]}`))
console.log(
  `\nNext: ${BASE}/docs shows the whole API, docs/guides/ has a page for each of these steps,\nexamples/ contains more modules.`,
)
