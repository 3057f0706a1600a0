/** The secret of a client. */
import { call } from '../../api/call.ts'

/** A single client is answered without its secret; the list has it for callers who may update the client. */
export async function fetchSecret(domain: string, client: string): Promise<string> {
  const { clients } = await call('GET /{domain_id}/clients', {
    params: { domain_id: domain },
    query: { id: client, status: 'all', limit: 1 },
  })
  const secret = clients[0]?.credentials.secret ?? ''
  if (secret === '') throw new Error('it requires the action client_update on this client')
  return secret
}
