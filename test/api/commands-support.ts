/** What the tests of commands share: a device, its commands, and short calls of both sides. */
import type { TestApi, TestResponse } from '../harness/api.ts'
import type { Tenant } from './support.ts'

export type Command = {
  id: string
  client_id: string
  domain_id: string
  name: string
  payload?: unknown
  status: string
  timeout: string
  expires_at: string
  created_at: string
  created_by?: string
  delivered_at?: string
  ended_at?: string
  result?: unknown
  reason?: string
  late_answer?: { status: string; at: string }
}

export type Offered = { id: string; name: string; payload?: unknown; created_at: string; expires_at: string }

export function expectStatus(status: number, response: TestResponse): TestResponse {
  if (response.status !== status) throw new Error(`expected ${status}, got ${response.status}: ${response.text}`)
  return response
}

export type Commanded = Awaited<ReturnType<typeof newCommanded>>

/** A new client, with the calls of users who command it and those of the device. */
export async function newCommanded(api: TestApi, tenant: Tenant) {
  const client = await tenant.newClient()
  const path = `/${tenant.domainId}/clients/${client.id}/commands`
  const device = api.as(`Client ${client.credentials.secret}`)
  const give = (body: unknown, query = '', headers?: Record<string, string>) =>
    tenant.call('POST', `${path}${query}`, body, headers)
  const poll = (query = '') => device('GET', `/c/${tenant.domainId}/commands${query}`)
  const answer = (id: string, body: unknown) => device('POST', `/c/${tenant.domainId}/commands/${id}/result`, body)
  return {
    client,
    path,
    device,
    give,
    poll,
    answer,
    given: async (body: unknown) => expectStatus(201, await give(body)).json<Command>(),
    view: async (id: string) => expectStatus(200, await tenant.call('GET', `${path}/${id}`)).json<Command>(),
    list: async () => expectStatus(200, await tenant.call('GET', path)).json<{ total: number; commands: Command[] }>(),
    cancel: (id: string) => tenant.call('POST', `${path}/${id}/cancel`),
    taken: async (query = '') => expectStatus(200, await poll(query)).json<{ commands: Offered[] }>().commands,
  }
}
