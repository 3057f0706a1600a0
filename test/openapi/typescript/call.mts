/** A first call with the types that openapi-typescript makes: log in, make a domain and a client, list it. */
import createClient from 'openapi-fetch'
import type { paths } from './generated/schema.d.ts'

declare const process: { argv: string[] }

const [baseUrl = '', password = ''] = process.argv.slice(2)

function given<T>(answer: { data?: T; error?: { message: string } }): T {
  if (answer.data === undefined) throw new Error(answer.error?.message ?? 'no answer')
  return answer.data
}

const anonymous = createClient<paths>({ baseUrl })
const tokens = given(await anonymous.POST('/users/tokens/issue', { body: { username: 'admin', password } }))
const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${tokens.access_token}` } })

const domain = given(await api.POST('/domains', { body: { name: 'typescript', route: 'typescript' } }))
const path = { domain_id: domain.id }
const client = given(await api.POST('/{domain_id}/clients', { params: { path }, body: { name: 'pump' } }))
const page = given(await api.GET('/{domain_id}/clients', { params: { path, query: { limit: 5 } } }))
if (page.clients[0]?.id !== client.id) throw new Error('the list does not hold the client')
const counted = given(await api.GET('/{domain_id}/clients', { params: { path, query: { only_total: true } } }))
if (counted.total !== 1 || counted.clients.length !== 0) throw new Error('the total alone is wrong')
const { error } = await api.GET('/{domain_id}/clients/{client_id}', {
  params: { path: { ...path, client_id: domain.id } },
})
if (error?.error !== 'not_found') throw new Error('an unknown client is found')
console.log(`made ${client.id}`)
