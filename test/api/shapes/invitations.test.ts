// contract 1.3 "Invitations", both forms; decision 24
import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_TIME, NEVER, having, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let domainId = ''
let roleId = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  domainId = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
  const role = await ann<{ role_id: string }>(`POST /domains/${domainId}/roles -> 201`, {
    sends: { role_name: 'operators', optional_actions: ['read', 'client_read'] },
  })
  roleId = role.role_id
})
afterAll(() => requests[Symbol.asyncDispose]())

describe('invitations to a role of the domain', () => {
  test('send, list, view, accept', async () => {
    const bob = await requests.person()
    const invite = { invitee_user_id: bob.id, role_id: roleId }
    await ann(`POST /domains/${domainId}/invitations -> 201`, { sends: invite, gives: '' })
    await ann(`POST /domains/${domainId}/invitations -> 409`, { sends: invite })
    await ann(`POST /domains/${domainId}/invitations -> 201`, { sends: { ...invite, resend: true }, gives: '' })
    await bob(`POST /domains/${domainId}/invitations -> 403`, { sends: invite })

    const record = {
      invited_by: ann.id,
      invitee_user_id: bob.id,
      domain_id: domainId,
      role_id: roleId,
      created_at: A_TIME,
      confirmed_at: NEVER,
      rejected_at: NEVER,
    }
    await bob('GET /invitations -> 200', {
      gives: page('invitations', [having({ ...record, domain_name: 'plant', role_name: 'operators' })]),
    })
    await ann(`GET /domains/${domainId}/invitations?state=pending -> 200`, {
      gives: page('invitations', [having(record)]),
    })
    await ann(`GET /domains/${domainId}/invitations?state=accepted -> 200`, { gives: page('invitations', []) })
    await ann(`GET /domains/${domainId}/invitations?state=perhaps -> 400`)
    await ann(`GET /domains/${domainId}/invitations?limit=101 -> 400`)
    await bob(`GET /domains/${domainId}/invitations/${bob.id} -> 200`, { gives: record })

    const carl = await requests.person()
    // An invitation of another user: 403. An unknown one: 404.
    await carl('POST /invitations/accept -> 403', { sends: { domain_id: domainId } })
    await bob('POST /invitations/accept -> 204', { sends: { domain_id: domainId }, gives: '' })
    await bob('POST /invitations/accept -> 409', { sends: { domain_id: domainId } })
    const { id: quiet } = await ann('POST /domains -> 201', { sends: { name: 'nobody is invited' } })
    await carl('POST /invitations/accept -> 404', { sends: { domain_id: quiet } })
    await bob(`GET /domains/${domainId}?roles=true -> 200`, {
      gives: { member_id: bob.id, roles: [having({ role_name: 'operators' })] },
    })
    await bob('GET /invitations?state=accepted -> 200', {
      gives: page('invitations', [having({ confirmed_at: A_TIME })]),
    })
    // Only while pending may the inviter take it back; the invitee at any time.
    await ann(`DELETE /domains/${domainId}/invitations/${bob.id} -> 409`)
    await bob(`DELETE /domains/${domainId}/invitations/${bob.id} -> 204`, { gives: '' })
  })

  test('reject, resend, take back', async () => {
    const bob = await requests.person()
    const invite = { invitee_user_id: bob.id, role_id: roleId }
    await ann(`POST /domains/${domainId}/invitations -> 201`, { sends: invite })
    await bob('POST /invitations/reject -> 204', { sends: { domain_id: domainId }, gives: '' })
    await bob('POST /invitations/reject -> 409', { sends: { domain_id: domainId } })
    await bob('GET /invitations?state=rejected -> 200', {
      gives: page('invitations', [having({ rejected_at: A_TIME })]),
    })
    await ann(`POST /domains/${domainId}/invitations -> 201`, { sends: { ...invite, resend: true } })
    await bob('GET /invitations?state=pending -> 200', { gives: page('invitations', [having({ rejected_at: NEVER })]) })
    await ann(`DELETE /domains/${domainId}/invitations -> 204`, { sends: { user_id: bob.id }, gives: '' })
    await bob('GET /invitations -> 200', { gives: page('invitations', []) })
    await bob(`GET /domains/${domainId}/invitations/${bob.id} -> 404`)
  })
})

describe('invitations to a relation', () => {
  test('send, list, view, accept, delete', async () => {
    const bob = await requests.person()
    const invite = { user_id: bob.id, domain_id: domainId, relation: 'Editor' }
    await ann('POST /invitations -> 201', { sends: invite, gives: '' })
    await ann('POST /invitations -> 409', { sends: invite })
    await ann('POST /invitations -> 400', { sends: { ...invite, relation: 'emperor' } })
    const record = { invited_by: ann.id, user_id: bob.id, domain_id: domainId, relation: 'editor', confirmed_at: NEVER }
    await bob('GET /invitations?offset=0&limit=5&relation=editor&state=pending -> 200', {
      gives: page('invitations', [having(record)], { limit: 5 }),
    })
    await ann(`GET /invitations?domain_id=${domainId}&user_id=${bob.id} -> 200`, {
      gives: page('invitations', [having(record)]),
    })
    await ann(`GET /invitations/${bob.id}/${domainId} -> 200`, { gives: record })
    await bob('POST /invitations/accept -> 204', { sends: { domain_id: domainId }, gives: '' })
    await bob('GET /domains -> 200', {
      gives: page('domains', [having({ role_name: 'editor', permission: 'editor' })]),
    })
    await bob(`DELETE /invitations/${bob.id}/${domainId} -> 204`, { gives: '' })
    await bob(`GET /invitations/${bob.id}/${domainId} -> 404`)
  })

  test('reject; each relation that there is', async () => {
    const bob = await requests.person()
    for (const relation of ['administrator', 'EDITOR', 'contributor', 'member', 'viewer', 'guest']) {
      await ann('POST /invitations -> 201', { sends: { user_id: bob.id, domain_id: domainId, relation } })
      await bob('POST /invitations/reject -> 204', { sends: { domain_id: domainId } })
      await bob(`DELETE /invitations/${bob.id}/${domainId} -> 204`)
    }
  })

  test('no answer holds a token', async () => {
    const bob = await requests.person()
    await ann('POST /invitations -> 201', { sends: { user_id: bob.id, domain_id: domainId, relation: 'viewer' } })
    await bob('GET /invitations -> 200', { gives: page('invitations', [having({ invited_by: A_STRING })]) })
  })
})
