/** Every method of the JavaScript client, once, as its users call it, and what they read in the result. */
import { randomBytes } from 'node:crypto'
import type { ClientSdk, Method } from './sdk.ts'

type Json = Record<string, unknown>

export type Call = {
  /** `Clients.CreateClient`. */
  name: string
  run: () => Promise<unknown>
  /** Throws, or is false, where the result is not what a user of the client expects. */
  check?: (result: Json) => unknown
  /** The result holds within a few seconds: counters are written in intervals. */
  isEventual?: true
}

export type Settings = {
  readonly sdk: ClientSdk
  readonly admin: { username: string; secret: string }
  /** The token of the newest mail to this address. */
  readonly mailToken: (address: string) => Promise<string>
}

const PASSWORD = '12345678'
const NEW_PASSWORD = '87654321'
const ENTITIES = ['Client', 'Channel', 'Group', 'Domain'] as const
type Entity = (typeof ENTITIES)[number]
/** An action of each entity that a role may have. */
const ACTIONS: Record<Entity, string> = { Client: 'read', Channel: 'read', Group: 'read', Domain: 'read' }
/** `SKEIN_BOOTSTRAP_ENCRYPT_KEY` of the platform. */
export const ENCRYPTION_KEY = '0123456789abcdef0123456789abcdef'
const OTHER_ACTION = 'update'

const idOf = (result: Json) => typeof result['id'] === 'string'
const isDone = (result: Json) => Number(result['status']) >= 200 && Number(result['status']) < 300
const hasStatus = (status: string) => (result: Json) => result['status'] === status
const isPage = (field: string) => (result: Json) => Array.isArray(result[field]) && Number(result['total']) >= 1
const isList = (result: unknown) => Array.isArray(result) && result.length > 0

/** In the order in which they are called: what a call makes is read by later ones. */
export function callsOf({ sdk, admin, mailToken }: Settings): Call[] {
  const calls: Call[] = []
  const of = (service: string) => {
    const methods = sdk[service]
    if (methods === undefined) throw new Error(`the client has no ${service}`)
    return (name: string, args: () => unknown[], check?: (result: Json) => unknown) =>
      calls.push({
        name: `${service}.${name}`,
        run: () => {
          const method: Method | undefined = methods[name]
          if (method === undefined) throw new Error(`the client has no ${service}.${name}`)
          return method.apply(methods, args())
        },
        ...(check === undefined ? {} : { check }),
      })
  }
  /** What was read, under the names that later calls use. */
  const kept: Record<string, string> = {}
  const keep =
    (name: string, ...path: (string | number)[]) =>
    (result: Json) => {
      let value: unknown = result
      for (const key of path) value = (value as Record<string | number, unknown> | undefined)?.[key]
      if (typeof value !== 'string' || value === '') throw new Error(`the result has no ${path.join('.')}`)
      kept[name] = value
      return true
    }
  const fresh = (name: string) => `${name}-${randomBytes(4).toString('hex')}`
  const newUser = (name: string, username: string) => ({
    first_name: name,
    last_name: 'tester',
    email: `${username}@example.com`,
    credentials: { username, secret: PASSWORD },
    metadata: { made: 'by a client' },
  })
  const bobName = fresh('bob')
  const eveName = fresh('eve')
  const bobMail = () => kept['bobMail'] ?? `${bobName}@example.com`
  const token = () => kept['token'] ?? ''
  const bob = () => kept['bob'] ?? ''
  const domain = () => kept['domain'] ?? ''
  const client = () => kept['client'] ?? ''
  const channel = () => kept['channel'] ?? ''
  const group = () => kept['group'] ?? ''
  const page = { offset: 0, limit: 10 }

  const users = of('Users')
  users('CreateToken', () => [{ username: admin.username, password: admin.secret }], keep('token', 'access_token'))
  users('Create', () => [newUser('bob', bobName)], keep('bob', 'id'))
  users(
    'CreateToken',
    () => [{ username: bobName, password: PASSWORD }],
    (result) => {
      keep('bobToken', 'access_token')(result)
      return keep('bobRefresh', 'refresh_token')(result)
    },
  )
  users('RefreshToken', () => [kept['bobRefresh']], keep('bobToken', 'access_token'))
  users(
    'User',
    () => [bob(), token()],
    (result) => result['id'] === bob(),
  )
  users(
    'UserProfile',
    () => [kept['bobToken']],
    (result) => result['id'] === bob(),
  )
  users('Users', () => [page, token()], isPage('users'))
  users('SearchUsers', () => [{ ...page, username: bobName.slice(0, 6) }, kept['bobToken']], isPage('users'))
  users(
    'Update',
    () => [{ id: bob(), first_name: 'robert', metadata: { a: 1 } }, token()],
    (result) => result['first_name'] === 'robert',
  )
  users('UpdateUsername', () => [{ id: bob(), credentials: { username: `${bobName}2` } }, token()], idOf)
  users(
    'UpdateProfilePicture',
    () => [{ id: bob(), profile_picture: 'https://example.com/bob.png' }, token()],
    (result) => String(result['profile_picture']).endsWith('bob.png'),
  )
  users(
    'UpdateUserTags',
    () => [{ id: bob(), tags: ['x', 'y'] }, token()],
    (result) => isList(result['tags']),
  )
  users(
    'UpdateUserRole',
    () => [{ id: bob(), role: 'admin' }, token()],
    (result) => result['role'] === 'admin',
  )
  users(
    'UpdateUserRole',
    () => [{ id: bob(), role: 'user' }, token()],
    (result) => result['role'] === 'user',
  )
  users('UpdateEmail', () => [{ id: bob(), email: `${bobName}-new@example.com` }, token()], keep('bobMail', 'email'))
  users(
    'UpdateUserPassword',
    () => [PASSWORD, NEW_PASSWORD, kept['bobToken']],
    (result) => result['id'] === bob(),
  )
  users('Disable', () => [bob(), token()], hasStatus('disabled'))
  users('Enable', () => [bob(), token()], hasStatus('enabled'))
  // A change of the password and disabling end sessions.
  users('CreateToken', () => [{ username: `${bobName}2`, password: NEW_PASSWORD }], keep('bobToken', 'access_token'))
  users('SendVerification', () => [kept['bobToken']], isDone)
  calls.push({
    name: 'Users.VerifyEmail',
    run: async () => sdk['Users']?.['VerifyEmail']?.call(sdk['Users'], await mailToken(bobMail())),
    check: isDone,
  })
  users('Create', () => [newUser('eve', eveName), token()], keep('eve', 'id'))
  users('ResetPasswordRequest', () => [`${eveName}@example.com`], isDone)
  calls.push({
    name: 'Users.ResetPassword',
    run: async () =>
      sdk['Users']?.['ResetPassword']?.call(
        sdk['Users'],
        NEW_PASSWORD,
        NEW_PASSWORD,
        await mailToken(`${eveName}@example.com`),
      ),
    check: isDone,
  })

  const domains = of('Domains')
  domains('CreateDomain', () => [{ name: 'home', route: fresh('home'), tags: ['x'] }, token()], keep('domain', 'id'))
  domains(
    'Domain',
    () => [domain(), token()],
    (result) => result['id'] === domain(),
  )
  domains(
    'Domain',
    () => [domain(), token(), true],
    (result) => isList(result['roles']),
  )
  domains('Domains', () => [page, token()], isPage('domains'))
  domains(
    'UpdateDomain',
    () => [{ id: domain(), name: 'house', metadata: { a: 1 } }, token()],
    (result) => result['name'] === 'house',
  )
  domains(
    'ListUserDomains',
    () => [kept['eve'], page, token()],
    (result) => Array.isArray(result['domains']),
  )
  domains('DisableDomain', () => [domain(), token()], isDone)
  domains('EnableDomain', () => [domain(), token()], isDone)

  const groups = of('Groups')
  groups('CreateGroup', () => [{ name: 'floor', description: 'd' }, domain(), token()], keep('group', 'id'))
  groups('CreateGroup', () => [{ name: 'room' }, domain(), token()], keep('room', 'id'))
  groups(
    'Group',
    () => [group(), domain(), token()],
    (result) => result['id'] === group(),
  )
  groups(
    'Group',
    () => [group(), domain(), token(), true],
    (result) => isList(result['roles']),
  )
  groups('Groups', () => [page, domain(), token()], isPage('groups'))
  groups(
    'UpdateGroup',
    () => [{ id: group(), name: 'ground', description: 'e' }, domain(), token()],
    (result) => result['name'] === 'ground',
  )
  groups(
    'UpdateGroupTags',
    () => [{ id: group(), tags: ['x'] }, domain(), token()],
    (result) => isList(result['tags']),
  )
  groups('DisableGroup', () => [group(), domain(), token()], hasStatus('disabled'))
  groups('EnableGroup', () => [group(), domain(), token()], hasStatus('enabled'))
  groups('AddParentGroup', () => [kept['room'], domain(), group(), token()], isDone)
  groups(
    'RetrieveGroupHierarchy',
    () => [group(), domain(), { level: 2, direction: -1, tree: true }, token()],
    (result) => isList(result['groups']),
  )
  groups('ListChildrenGroups', () => [group(), domain(), page, token()], isPage('groups'))
  groups('RemoveParentGroup', () => [kept['room'], domain(), token()], isDone)
  groups('AddChildrenGroups', () => [group(), domain(), [kept['room']], token()], isDone)
  groups('RemoveChildrenGroups', () => [group(), domain(), [kept['room']], token()], isDone)
  groups('AddChildrenGroups', () => [group(), domain(), [kept['room']], token()], isDone)
  groups('RemoveAllChildrenGroups', () => [group(), domain(), token()], isDone)

  const clients = of('Clients')
  clients(
    'CreateClient',
    () => [{ name: 'sensor', tags: ['x'], metadata: { a: 1 } }, domain(), token()],
    (result) => {
      keep('secret', 'credentials', 'secret')(result)
      return keep('client', 'id')(result)
    },
  )
  clients(
    'CreateClients',
    () => [[{ name: 'one' }, { name: 'two' }], domain(), token()],
    keep('spare', 'clients', 0, 'id'),
  )
  clients(
    'Client',
    () => [client(), domain(), token()],
    (result) => result['id'] === client(),
  )
  clients(
    'Client',
    () => [client(), domain(), token(), true],
    (result) => isList(result['roles']),
  )
  clients('Clients', () => [page, domain(), token()], isPage('clients'))
  clients(
    'UpdateClient',
    () => [{ id: client(), name: 'thermometer' }, domain(), token()],
    (result) => result['name'] === 'thermometer',
  )
  clients(
    'UpdateClientTags',
    () => [{ id: client(), tags: ['y'] }, domain(), token()],
    (result) => isList(result['tags']),
  )
  clients(
    'UpdateClientSecret',
    () => [{ id: client(), credentials: { secret: fresh('secret-of-the-client') } }, domain(), token()],
    keep('secret', 'credentials', 'secret'),
  )
  clients('Disable', () => [client(), domain(), token()], hasStatus('disabled'))
  clients('Enable', () => [client(), domain(), token()], hasStatus('enabled'))
  clients('setClientParentGroup', () => [domain(), client(), group(), token()], isDone)
  clients('DeleteClientParentGroup', () => [domain(), client(), token()], isDone)

  const channels = of('Channels')
  channels('CreateChannel', () => [{ name: 'climate', tags: ['x'] }, domain(), token()], keep('channel', 'id'))
  channels(
    'CreateChannels',
    () => [[{ name: 'one' }, { name: 'two' }], domain(), token()],
    keep('spareChannel', 'channels', 0, 'id'),
  )
  channels(
    'Channel',
    () => [channel(), domain(), token()],
    (result) => result['id'] === channel(),
  )
  channels(
    'Channel',
    () => [channel(), domain(), token(), true],
    (result) => isList(result['roles']),
  )
  channels('Channels', () => [page, domain(), token()], isPage('channels'))
  channels(
    'UpdateChannelNameAndMetadata',
    () => [{ id: channel(), name: 'weather', metadata: { a: 1 } }, domain(), token()],
    (result) => result['name'] === 'weather',
  )
  channels(
    'UpdateChannelTags',
    () => [{ id: channel(), tags: ['y'] }, domain(), token()],
    (result) => isList(result['tags']),
  )
  channels('DisableChannel', () => [channel(), domain(), token()], hasStatus('disabled'))
  channels('EnableChannel', () => [channel(), domain(), token()], hasStatus('enabled'))
  channels('SetChannelParentGroup', () => [domain(), channel(), group(), token()], isDone)
  channels('DeleteChannelParentGroup', () => [domain(), channel(), token()], isDone)
  channels('ConnectClient', () => [[client()], channel(), ['publish', 'subscribe'], domain(), token()], isDone)
  channels('DisconnectClient', () => [[client()], channel(), ['publish', 'subscribe'], domain(), token()], isDone)
  channels('Connect', () => [[client()], [channel()], ['publish', 'subscribe'], domain(), token()], isDone)

  const messages = of('Messages')
  messages(
    'Send',
    () => [
      domain(),
      channel(),
      JSON.stringify([{ bn: 'sensor:', n: 'temperature', u: 'Cel', v: 21.5 }]),
      kept['secret'],
    ],
    isDone,
  )
  messages('Read', () => [domain(), channel(), page, token()], isPage('messages'))
  channels('Disconnect', () => [[client()], [channel()], ['publish', 'subscribe'], domain(), token()], isDone)

  users(
    'ListUserGroups',
    () => [domain(), bob(), page, token()],
    (result) => Array.isArray(result['groups']),
  )
  users(
    'ListUserClients',
    () => [bob(), domain(), page, token()],
    (result) => Array.isArray(result['clients']),
  )
  users(
    'ListUserChannels',
    () => [domain(), bob(), page, token()],
    (result) => Array.isArray(result['channels']),
  )

  domains('CreateDomainRole', () => [domain(), 'guest', token(), ['read']], keep('guestRole', 'id'))
  domains('SendInvitation', () => [bob(), domain(), kept['guestRole'], token()], isDone)
  domains(
    'ViewInvitation',
    () => [bob(), domain(), token()],
    (result) => JSON.stringify(result).includes(bob()),
  )
  domains('ListDomainInvitations', () => [page, domain(), token()], isPage('invitations'))
  domains('ListUserInvitations', () => [page, kept['bobToken']], isPage('invitations'))
  domains('RejectInvitation', () => [domain(), kept['bobToken']], isDone)
  domains('SendInvitation', () => [bob(), domain(), kept['guestRole'], token(), true], isDone)
  domains('AcceptInvitation', () => [domain(), kept['bobToken']], isDone)
  domains('SendInvitation', () => [kept['eve'], domain(), kept['guestRole'], token()], isDone)
  domains('DeleteInvitation', () => [kept['eve'], domain(), token()], isDone)

  for (const entity of ENTITIES) {
    const role = () => kept['role'] ?? ''
    const id = { Client: client, Channel: channel, Group: group, Domain: domain }[entity]
    const service = of(`${entity}s`)
    /** Roles of a domain are called without the id of an entity in it. */
    const at = (...more: unknown[]) =>
      entity === 'Domain' ? [domain(), ...more, token()] : [id(), domain(), ...more, token()]
    const action = ACTIONS[entity]
    service(`List${entity}Actions`, () => (entity === 'Domain' ? [token()] : [domain(), token()]), isList as never)
    service(
      `Create${entity}Role`,
      () => {
        const name = fresh('role')
        if (entity === 'Domain') return [domain(), name, token(), [action]]
        if (entity === 'Group') return [id(), domain(), name, token(), [action]]
        return [id(), name, domain(), token(), [action]]
      },
      keep('role', 'id'),
    )
    service(`List${entity}Roles`, () => at(page), isPage('roles'))
    service(
      `View${entity}Role`,
      () => at(role()),
      (result) => result['id'] === role(),
    )
    service(
      `Update${entity}Role`,
      () => at(role(), { name: fresh('renamed') }),
      (result) => String(result['name']).startsWith('renamed'),
    )
    service(`Add${entity}RoleActions`, () => at(role(), [OTHER_ACTION]), isList as never)
    service(`List${entity}RoleActions`, () => at(role()), isList as never)
    service(`Delete${entity}RoleActions`, () => at(role(), [OTHER_ACTION]), isDone)
    service(`DeleteAll${entity}RoleActions`, () => at(role()), isDone)
    service(`Add${entity}RoleMembers`, () => at(role(), [bob()]), isList as never)
    service(`List${entity}RoleMembers`, () => at(role(), page), isPage('members'))
    service(`List${entity}Members`, () => at(page), isPage('members'))
    service(`Delete${entity}RoleMembers`, () => at(role(), [bob()]), isDone)
    service(`DeleteAll${entity}RoleMembers`, () => at(role()), isDone)
    service(`Delete${entity}Role`, () => at(role()), isDone)
  }

  const certs = of('Certs')
  certs('IssueCert', () => [client(), '10h', domain(), token()], keep('serial', 'serial_number'))
  certs('ViewCertByClient', () => [client(), domain(), token()], isPage('certs'))
  certs(
    'ViewCert',
    () => [kept['serial'], domain(), token()],
    (result) => JSON.stringify(result).includes('BEGIN CERTIFICATE'),
  )
  certs('RevokeCert', () => [kept['serial'], domain(), token()], isDone)

  const bootstrap = of('Bootstrap')
  const externalId = fresh('gateway')
  const externalKey = randomBytes(8).toString('hex')
  const config = () => ({
    external_id: externalId,
    external_key: externalKey,
    client_id: client(),
    channels: [channel()],
    name: 'gateway',
    content: '{"a":1}',
  })
  bootstrap('AddBootstrap', () => [config(), domain(), token()], isDone)
  bootstrap(
    'ViewBootstrap',
    () => [client(), domain(), token()],
    (result) => result['client_id'] === client(),
  )
  bootstrap('Bootstraps', () => [page, domain(), token()], isPage('configs'))
  bootstrap(
    'UpdateBootstrap',
    () => [{ client_id: client(), name: 'hub', content: '{"a":2}' }, domain(), token()],
    isDone,
  )
  bootstrap(
    'UpdateBootstrapCerts',
    () => [{ client_id: client(), client_cert: 'c', client_key: 'k', ca_cert: 'a' }, domain(), token()],
    (result) => result['client_id'] === client(),
  )
  bootstrap('UpdateBootstrapConnection', () => [client(), domain(), [kept['spareChannel']], token()], isDone)
  bootstrap('Whitelist', () => [{ client_id: client(), state: 1 }, domain(), token()], isDone)
  bootstrap(
    'Bootstrap',
    () => [externalId, externalKey],
    (result) => result['client_id'] === client(),
  )
  bootstrap(
    'SecureBootstrap',
    () => [externalId, externalKey, ENCRYPTION_KEY],
    (result) => result['client_id'] === client(),
  )
  bootstrap('DeleteBootstrap', () => [client(), domain(), token()], isDone)

  const journal = of('Journal')
  journal(
    'EntityJournals',
    () => ['client', client(), domain(), { ...page, with_attributes: true }, token()],
    isPage('journals'),
  )
  journal('UserJournals', () => [bob(), { ...page, with_metadata: true }, token()], isPage('journals'))
  calls.push({
    name: 'Journal.ClientTelemetry',
    run: () => Promise.resolve(sdk['Journal']?.['ClientTelemetry']?.call(sdk['Journal'], client(), domain(), token())),
    check: (result) => result['client_id'] === client() && result['inbound_messages'] === 1,
    isEventual: true,
  })

  of('Health')('Health', () => ['users'], hasStatus('pass'))

  const pats = of('PATs')
  pats('CreatePAT', () => [fresh('token'), '10h', token(), 'd'], keep('pat', 'id'))
  pats('ListPATS', () => [page, token()], isPage('pats'))
  pats(
    'ViewPAT',
    () => [kept['pat'], token()],
    (result) => result['id'] === kept['pat'],
  )
  pats(
    'UpdateName',
    () => [fresh('renamed'), kept['pat'], token()],
    (result) => String(result['name']).startsWith('renamed'),
  )
  pats(
    'UpdateDescription',
    () => ['e', kept['pat'], token()],
    (result) => result['description'] === 'e',
  )
  pats(
    'ResetSecret',
    () => ['5h', kept['pat'], token()],
    (result) => typeof result['secret'] === 'string',
  )
  pats(
    'AddScope',
    () => [[{ entity_type: 'clients', domain_id: domain(), operation: 'list', entity_id: '*' }], kept['pat'], token()],
    isDone,
  )
  pats('ListScopes', () => [kept['pat'], page, token()], keep('scope', 'scopes', 0, 'id'))
  pats('DeleteScopes', () => [kept['pat'], [kept['scope']], token()], isDone)
  pats('DeleteAllScopes', () => [kept['pat'], token()], isDone)
  pats('RevokePAT', () => [kept['pat'], token()], isDone)
  pats('DeletePAT', () => [kept['pat'], token()], isDone)
  pats('DeleteAllPATs', () => [token()], isDone)

  const id = '3f0f1b0e-8a6e-4f4f-9a36-3f2f5b7c1a10'
  const rules = of('Rules')
  rules('create', () => [domain(), { name: 'r', input_channel: channel() }, token()], idOf)
  rules('view', () => [domain(), id, token()], idOf)
  rules('list', () => [domain(), page, token()], isPage('rules'))
  rules('update', () => [domain(), { id, name: 's' }, token()], idOf)
  rules('updateTags', () => [domain(), id, ['x'], token()], idOf)
  rules(
    'updateSchedule',
    () => [
      domain(),
      id,
      { start_datetime: '2030-01-01T00:00:00Z', time: '2030-01-01T00:00:00Z', recurring: 'daily', recurring_period: 1 },
      token(),
    ],
    idOf,
  )
  rules('enable', () => [domain(), id, token()], idOf)
  rules('disable', () => [domain(), id, token()], idOf)
  rules('delete', () => [domain(), id, token()], isDone)
  const alarms = of('Alarms')
  alarms('list', () => [domain(), page, token()], isPage('alarms'))
  alarms('view', () => [domain(), id, token()], idOf)
  alarms('update', () => [domain(), { id, status: 'cleared' }, token()], idOf)
  alarms('delete', () => [domain(), id, token()], isDone)
  const reports = of('Reports')
  const report = { name: 'r', metrics: [], config: { from: 'now()-1h', to: 'now()' } }
  reports('generateReport', () => [domain(), report, token()], isPage('reports'))
  reports('addReportConfig', () => [domain(), report, token()], idOf)
  reports('viewReportConfig', () => [domain(), id, token()], idOf)
  reports('listReportConfigs', () => [domain(), page, token()], isPage('report_configs'))
  reports('updateReportConfig', () => [domain(), { id, ...report }, token()], idOf)
  reports('updateReportSchedule', () => [domain(), id, { recurring: 'daily' }, token()], idOf)
  reports('enableReportConfig', () => [domain(), id, token()], idOf)
  reports('disableReportConfig', () => [domain(), id, token()], idOf)
  reports('updateReportTemplate', () => [domain(), id, '<p></p>', token()])
  reports(
    'viewReportTemplate',
    () => [domain(), id, token()],
    (result) => typeof result['html_template'] === 'string',
  )
  reports('deleteReportTemplate', () => [domain(), id, token()])
  reports('deleteReportConfig', () => [domain(), id, token()], isDone)

  clients('DeleteClient', () => [client(), domain(), token()], isDone)
  channels('DeleteChannel', () => [channel(), domain(), token()], isDone)
  groups('DeleteGroup', () => [group(), domain(), token()], isDone)
  domains('FreezeDomain', () => [domain(), token()], isDone)
  users('DeleteUser', () => [kept['eve'], token()], isDone)
  return calls
}
