/** `skein provision test`: an end-to-end check of the platform, from a new user to stored messages. */
import { randomBytes } from 'node:crypto'
import type { ApiRequest, Cli } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { isRecord, plainText } from '../shared/values.ts'

const PASSWORD = '12345678'
const COUNT = 2
/** Client and channel of each pair, by number. */
const PAIRS = [
  [0, 0],
  [0, 1],
  [1, 0],
] as const

type Entity = { id: string; secret: string }

export async function runTrial(cli: Cli): Promise<void> {
  const name = `trial-${randomBytes(4).toString('hex')}`
  const send = async (request: ApiRequest): Promise<Record<string, unknown>> => {
    const { value } = await cli.request(request)
    return isRecord(value) ? value : {}
  }
  const user = await send({
    method: 'POST',
    service: 'users',
    path: '/users',
    authorization: 'none',
    json: {
      first_name: name,
      last_name: `${name}-last`,
      email: `${name}@email.com`,
      credentials: { username: name, secret: PASSWORD },
      status: 'enabled',
    },
  })
  const logIn = (domainId?: string) =>
    send({
      method: 'POST',
      service: 'users',
      path: '/users/tokens/issue',
      authorization: 'none',
      json: { identity: name, secret: PASSWORD, ...(domainId === undefined ? {} : { domain_id: domainId }) },
    })
  const first = await logIn()
  const alias = `${name}-domain`
  const domain = await send({
    method: 'POST',
    service: 'domains',
    path: '/domains',
    token: textAt(first, 'access_token'),
    json: { name: alias, alias, route: alias },
  })
  const domainId = textAt(domain, 'id')
  const tokens = await logIn(domainId)
  const token = textAt(tokens, 'access_token')
  const bulk = (what: 'clients' | 'channels', kind: string) =>
    send({
      method: 'POST',
      service: what,
      path: `/${domainId}/${what}/bulk`,
      token,
      json: Array.from({ length: COUNT }, (_, index) => ({ name: `${name}-${kind}-${index}`, status: 'enabled' })),
    })
  const clients = await bulk('clients', 'client')
  const channels = await bulk('channels', 'channel')
  const clientList = entitiesOf(clients['clients'])
  const channelList = entitiesOf(channels['channels'])
  for (const [client, channel] of PAIRS) {
    const from = at(clientList, client)
    const to = at(channelList, channel)
    await send({
      method: 'POST',
      service: 'channels',
      path: `/${domainId}/channels/connect`,
      token,
      json: { client_ids: [from.id], channel_ids: [to.id], types: ['publish', 'subscribe'] },
    })
    await send({
      method: 'POST',
      service: 'http',
      path: `/m/${domainId}/c/${to.id}`,
      contentType: 'application/senml+json',
      authorization: { header: `Client ${from.secret}` },
      text: JSON.stringify([
        {
          bn: 'provision:',
          bt: Date.now() / 1000,
          bu: 'V',
          bver: 5,
          n: 'voltage',
          u: 'V',
          v: Math.round(Math.random() * 2400) / 10,
        },
      ]),
    })
  }
  // Prints each list as a separate object, as the original CLI does.
  for (const part of [user, tokens, clients['clients'], channels['channels']]) cli.output.data(part)
}

function entitiesOf(value: unknown): Entity[] {
  return (Array.isArray(value) ? value : []).filter(isRecord).map((item) => ({
    id: textAt(item, 'id'),
    secret: isRecord(item['credentials']) ? plainText(item['credentials']['secret']) : '',
  }))
}

function at(list: readonly Entity[], index: number): Entity {
  const found = list[index]
  if (found === undefined) throw new CommandError('the server created fewer entities than requested')
  return found
}

function textAt(record: Record<string, unknown>, key: string): string {
  const value = record[key]
  if (typeof value !== 'string')
    throw new CommandError(`the answer contains no ${key}`, 'check the address: skein doctor')
  return value
}
