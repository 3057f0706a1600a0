/**
 * The forms of older clients, as one table: what they say, the newer form, who says it, and the test that shows it. Routes translate with
 * these rows before they call a service, and presenters after it. Services and repositories know the newer form only.
 */

/** One form of an older client. */
export type OlderForm = {
  older: string
  newer: string
  /** Who needs it. */
  client: string
  /** A recorded request (`things.json: deleted`) or a test (`test/api/users.test.ts: its title`) that sends the older form. */
  test: string
}

const MAGISTRALA_14 = 'Magistrala v0.14 Go client and command line'
const MAGISTRALA_15 = 'Magistrala v0.15 Go client and command line'
const MAINFLUX = 'Mainflux and Magistrala'
const SUPERMQ = 'Mainflux and SuperMQ'
const WITH_PASSWORDS = 'SuperMQ Go client and command line, JavaScript client'
const AGENTS = 'agents of Mainflux, Magistrala and SuperMQ on devices'
const PROPELLER = 'Propeller Go client and command line'

export type PathParams = Readonly<Record<string, string>>

/** A path that is replaced before routing. The older paths are in no API document. */
export type OlderPath = OlderForm & {
  /** The body of the newer route, where the older one has none. */
  body?: (params: PathParams) => unknown
  /** The answer to a deletion has no body and this status. */
  status?: number
}

const pairOf = ({ thing = '' }: PathParams) => ({ client_ids: [thing] })
const UNIT = 'api/legacy-routes.test.ts'
const IS_TREATED = `${UNIT}: %s is treated as %s`
const IS_TREATED_IN_DOMAIN = `${UNIT}: with a token that is bound to a domain %s is treated as %s`

/**
 * The first row that fits is used. `:name` is one segment, a final `*` the rest of the path, also none. `{domain}` is an optional segment.
 * `{bound}` is the domain that the token is bound to; without one the row does not fit.
 */
export const PATHS: readonly OlderPath[] = [
  {
    older: '/things/configs/*',
    newer: '/{bound}/clients/configs/*',
    client: MAGISTRALA_14,
    test: 'bound-tokens.json: makes a bootstrap configuration',
  },
  {
    older: '/things/state/:thing',
    newer: '/{bound}/clients/state/:thing',
    client: MAGISTRALA_14,
    test: IS_TREATED_IN_DOMAIN,
  },
  {
    older: '/journal/thing/*',
    newer: '/{bound}/journal/client/*',
    client: MAGISTRALA_14,
    test: IS_TREATED_IN_DOMAIN,
  },
  { older: '/certs', newer: '/{bound}/certs', client: MAGISTRALA_14, test: 'bound-tokens.json: issues a certificate' },
  {
    older: '/certs/:certificate',
    newer: '/{bound}/certs/:certificate',
    client: MAGISTRALA_14,
    test: IS_TREATED_IN_DOMAIN,
  },
  { older: '/serials/:thing', newer: '/{bound}/serials/:thing', client: MAGISTRALA_14, test: IS_TREATED_IN_DOMAIN },
  {
    older: '{domain}/things/:thing',
    newer: '{domain}/clients/:thing',
    status: 204,
    client: MAGISTRALA_15,
    test: 'things.json: deleted',
  },
  {
    older: '{domain}/things/*',
    newer: '{domain}/clients/*',
    client: MAGISTRALA_15,
    test: 'things.json: a thing is made',
  },
  {
    older: '{domain}/channels/:channel/things/:thing/connect',
    newer: '{domain}/channels/:channel/connect',
    body: pairOf,
    client: MAGISTRALA_15,
    test: 'things.json: connected by the path',
  },
  {
    older: '{domain}/channels/:channel/things/:thing/disconnect',
    newer: '{domain}/channels/:channel/disconnect',
    body: pairOf,
    client: MAGISTRALA_15,
    test: IS_TREATED,
  },
  {
    older: '{domain}/channels/:channel/things/*',
    newer: '{domain}/channels/:channel/clients/*',
    client: MAGISTRALA_15,
    test: 'things.json: things of a channel',
  },
  {
    older: '{domain}/groups/:group/things',
    newer: '{domain}/groups/:group/clients',
    client: MAGISTRALA_15,
    test: IS_TREATED,
  },
  {
    older: '{domain}/users/:user/things',
    newer: '{domain}/users/:user/clients',
    client: MAGISTRALA_15,
    test: 'things.json: things of a user, with an empty domain',
  },
  {
    older: '{domain}/journal/thing/*',
    newer: '{domain}/journal/client/*',
    client: MAGISTRALA_15,
    test: IS_TREATED,
  },
  {
    older: '/:domain/connect',
    newer: '/:domain/channels/connect',
    client: MAGISTRALA_15,
    test: 'things.json: connected by the old names',
  },
  { older: '/:domain/disconnect', newer: '/:domain/channels/disconnect', client: MAGISTRALA_15, test: IS_TREATED },
]

/** Older routes with other shapes, which have handlers of their own in the file of the key. Both paths are as in the API document. */
export const ROUTES: Readonly<Record<string, readonly OlderForm[]>> = {
  'api/devices/connections/routes.ts': [
    {
      older: '/connect',
      newer: '/{domain_id}/channels/connect',
      client: MAGISTRALA_14,
      test: 'bound-tokens.json: connects',
    },
    {
      older: '/disconnect',
      newer: '/{domain_id}/channels/disconnect',
      client: MAGISTRALA_14,
      test: 'bound-tokens.json: disconnects',
    },
  ],
  'api/devices/channels/legacy-routes.ts': [
    {
      older: '/{domain_id}/channels/{channel_id}/groups/assign',
      newer: '/{domain_id}/channels/{channel_id}/parent',
      client: SUPERMQ,
      test: 'test/api/channels-groups.test.ts: assigning a channel to a group sets its parent and only group, and unassigning removes it',
    },
    {
      older: '/{domain_id}/channels/{channel_id}/groups/unassign',
      newer: '/{domain_id}/channels/{channel_id}/parent',
      client: SUPERMQ,
      test: 'test/api/channels-groups.test.ts: assigning a channel to a group sets its parent and only group, and unassigning removes it',
    },
  ],
  'api/identity/invitations/legacy-routes.ts': [
    {
      older: '/invitations/{user_id}/{domain_id}',
      newer: '/domains/{domain_id}/invitations/{user_id}',
      client: 'Magistrala v0.15, SuperMQ v0.16',
      test: 'test/api/invitations.test.ts: %s makes a member of the role %s',
    },
  ],
  'manager/workers/legacy-routes.ts': [
    { older: '/proplets', newer: '/workers', client: PROPELLER, test: 'proplets-and-jobs.json: lists proplets' },
    {
      older: '/proplets/{proplet_id}',
      newer: '/workers/{worker_id}',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: shows one',
    },
    {
      older: '/proplets/{proplet_id}/alive-history',
      newer: '/workers/{worker_id}',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: when it was alive',
    },
    {
      older: '/proplets/{proplet_id}/metrics',
      newer: '/workers/{worker_id}',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: what it measured',
    },
  ],
  'manager/runs/legacy-routes.ts': [
    {
      older: '/tasks/{task_id}/metrics',
      newer: '/tasks/{task_id}/runs',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: what a task measured',
    },
  ],
  'manager/workflows/legacy-routes.ts': [
    { older: '/jobs', newer: '/workflows', client: PROPELLER, test: 'proplets-and-jobs.json: creates a job' },
    {
      older: '/jobs/{job_id}',
      newer: '/workflows/{workflow_id}',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: shows a job',
    },
    {
      older: '/jobs/{job_id}/start',
      newer: '/workflows/{workflow_id}/start',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: starts a job',
    },
    {
      older: '/jobs/{job_id}/stop',
      newer: '/workflows/{workflow_id}/stop',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: stops a job',
    },
  ],
}

/** Older names of fields, by the file that translates them. The newer name is preferred, then the rows in their order. */
export const FIELDS = {
  'api/devices/connections/connection-request.ts': [
    {
      older: 'subjects',
      newer: 'client_ids',
      client: MAINFLUX,
      test: 'test/api/connections.test.ts: the legacy names subjects and objects mean clients and channels',
    },
    { older: 'thing_id', newer: 'client_ids', client: MAGISTRALA_14, test: 'things.json: connected by the old names' },
    {
      older: 'objects',
      newer: 'channel_ids',
      client: MAINFLUX,
      test: 'test/api/connections.test.ts: the legacy names subjects and objects mean clients and channels',
    },
    {
      older: 'channel_id',
      newer: 'channel_ids',
      client: MAGISTRALA_14,
      test: 'things.json: connected by the old names',
    },
    {
      older: 'actions',
      newer: 'types',
      client: MAINFLUX,
      test: 'test/api/connections-forms.test.ts: subjects and objects',
    },
  ],
  'api/provisioning/bulk/schema.ts': [
    {
      older: 'subjects',
      newer: 'client_ids',
      client: MAINFLUX,
      test: 'test/provision/import.test.ts: accepts the JSON of every supported product version, as a list or a single object',
    },
    {
      older: 'objects',
      newer: 'channel_ids',
      client: MAINFLUX,
      test: 'test/provision/import.test.ts: accepts the JSON of every supported product version, as a list or a single object',
    },
    {
      older: 'thing_id',
      newer: 'client_id',
      client: MAGISTRALA_14,
      test: 'test/provision/import.test.ts: accepts the JSON of every supported product version, as a list or a single object',
    },
  ],
  'api/provisioning/bootstrap/schema.ts': [
    {
      older: 'thing_id',
      newer: 'client_id',
      client: MAGISTRALA_14,
      test: 'test/bootstrap/bootstrap.test.ts: accepts the client under its legacy name %s',
    },
    {
      older: 'magistrala_id',
      newer: 'client_id',
      client: AGENTS,
      test: 'test/bootstrap/bootstrap.test.ts: accepts the client under its legacy name %s',
    },
    {
      older: 'mainflux_id',
      newer: 'client_id',
      client: AGENTS,
      test: 'test/bootstrap/bootstrap.test.ts: accepts the client under its legacy name %s',
    },
  ],
  'api/provisioning/certs/routes.ts': [
    { older: 'thing_id', newer: 'client_id', client: MAGISTRALA_14, test: 'bound-tokens.json: issues a certificate' },
  ],
  'api/identity/tokens/routes.ts': [
    {
      older: 'username',
      newer: 'identity',
      client: WITH_PASSWORDS,
      test: 'bearer-that-is-none.json: login',
    },
    {
      older: 'password',
      newer: 'secret',
      client: WITH_PASSWORDS,
      test: 'bearer-that-is-none.json: login',
    },
  ],
  'manager/tasks/legacy-fields.ts': [
    {
      older: 'proplet_id',
      newer: 'worker_id',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: a task for one proplet',
    },
  ],
} as const satisfies Readonly<Record<string, readonly OlderForm[]>>

/** Older words for a value, by the file that translates them. A word that stands for several names all of them. */
export const WORDS = {
  'api/identity/journal/schema.ts': [
    {
      older: 'client.change_status',
      newer: 'client.enable or client.disable',
      client: MAINFLUX,
      test: 'test/api/journal-listings.test.ts: operation, from, to, dir, offset and limit narrow and turn the listing',
    },
    {
      older: 'channel.change_status',
      newer: 'channel.enable or channel.disable',
      client: MAINFLUX,
      test: 'older/index.test.ts: a word can stand for several',
    },
    {
      older: 'group.change_status',
      newer: 'group.enable or group.disable',
      client: MAINFLUX,
      test: 'older/index.test.ts: a word can stand for several',
    },
  ],
  'api/identity/access/actions.ts': [
    {
      older: 'c_list',
      newer: 'membership',
      client: MAINFLUX,
      test: 'test/api/roles-members.test.ts: actions are accepted by the names of earlier product versions',
    },
    {
      older: 'm_write',
      newer: 'publish',
      client: MAINFLUX,
      test: 'test/api/connections-forms.test.ts: subjects and objects',
    },
    {
      older: 'm_read',
      newer: 'subscribe',
      client: MAINFLUX,
      test: 'test/api/connections-forms.test.ts: subjects and objects',
    },
  ],
} as const satisfies Readonly<Record<string, readonly OlderForm[]>>

/** Names that an answer has beside the newer ones, by the file that adds them. */
export const ANSWERS = {
  'api/provisioning/bootstrap/schema.ts': [
    {
      older: 'thing_id',
      newer: 'client_id',
      client: AGENTS,
      test: 'device-keys.json: fetches its bootstrap configuration',
    },
    {
      older: 'thing_key',
      newer: 'client_secret',
      client: AGENTS,
      test: 'device-keys.json: fetches its bootstrap configuration',
    },
    {
      older: 'mainflux_id',
      newer: 'client_id',
      client: AGENTS,
      test: 'older/index.test.ts: an answer has the older names beside the newer ones',
    },
    {
      older: 'mainflux_key',
      newer: 'client_secret',
      client: AGENTS,
      test: 'test/bootstrap/bootstrap.test.ts: gets its complete configuration for its external id and key, active or not',
    },
    {
      older: 'mainflux_channels',
      newer: 'channels',
      client: AGENTS,
      test: 'older/index.test.ts: an answer has the older names beside the newer ones',
    },
  ],
  'manager/tasks/schema.ts': [
    {
      older: 'proplet_id',
      newer: 'worker_id',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: a task for one proplet',
    },
  ],
} as const satisfies Readonly<Record<string, readonly OlderForm[]>>

/** Fields whose empty text means no value, by the file that translates them. */
export const EMPTY = {
  'api/devices/connectable/schema.ts': [
    {
      older: 'parent_group_id',
      newer: 'absent',
      client: 'Go clients',
      test: 'test/api/clients-parents.test.ts: can be set at creation, alone and in bulk, and grants its members the rights of its roles',
    },
    {
      older: 'route',
      newer: 'absent; null in a change',
      client: 'Go clients',
      test: 'test/api/channels.test.ts: an empty route is no route, at the creation, in a file and in a change',
    },
  ],
} as const satisfies Readonly<Record<string, readonly OlderForm[]>>

/** Fields that would have an effect that Skein does not have: they are refused, unless their value changes nothing. */
export type RefusedField = OlderForm & { accepted: readonly unknown[] }

export const REFUSED = [
  {
    older: 'encrypted',
    newer: 'refused with 422',
    accepted: [false],
    client: PROPELLER,
    test: 'proplets-and-jobs.json: an encrypted task',
  },
  {
    older: 'kbs_resource_path',
    newer: 'refused with 422',
    accepted: [''],
    client: PROPELLER,
    test: 'proplets-and-jobs.json: a path of a key broker',
  },
  {
    older: 'kind',
    newer: 'refused with 422, but for `standard`',
    accepted: ['', 'standard'],
    client: PROPELLER,
    test: 'proplets-and-jobs.json: a federated task',
  },
  {
    older: 'mode',
    newer: 'refused with 422, but for `infer`',
    accepted: ['', 'infer'],
    client: PROPELLER,
    test: 'proplets-and-jobs.json: a task that trains',
  },
  {
    older: 'latent',
    newer: 'refused with 422',
    accepted: [false, '', null],
    client: PROPELLER,
    test: 'older/index.test.ts: fields are refused that would have no effect',
  },
] as const satisfies readonly RefusedField[]

/** Forms with rules of their own, by the file that contains them. */
export const RULES: Readonly<Record<string, readonly OlderForm[]>> = {
  'core/authorization.ts': [
    { older: 'Thing', newer: 'Client', client: MAINFLUX, test: 'device-keys.json: sends on the older path' },
  ],
  'http/requests/nulls.ts': [
    { older: 'null', newer: 'absent', client: 'Go clients', test: 'null.json: a client without tags and metadata' },
  ],
  'api/identity/tokens/bearer.ts': [
    {
      older: 'undefined',
      newer: 'no token',
      client: 'JavaScript client',
      test: 'bearer-that-is-none.json: registration with `Bearer undefined`',
    },
  ],
  'api/adapters/http/publish.ts': [
    {
      older: '/channels/',
      newer: '/m/{domain}/c/{channel}',
      client: MAINFLUX,
      test: 'device-keys.json: sends on the older path',
    },
    {
      older: '/http/channels/',
      newer: '/m/{domain}/c/{channel}',
      client: MAINFLUX,
      test: 'device-keys.json: sends under the prefix of the adapter',
    },
  ],
  'api/messages/reader/filter.ts': [
    {
      older: 'nanoseconds',
      newer: 'seconds',
      client: MAINFLUX,
      test: 'test/messages/read.test.ts: from is inclusive, to is exclusive, in seconds or nanoseconds',
    },
  ],
  'api/provisioning/notifications/topic.ts': [
    {
      older: 'channels',
      newer: 'absent, before the channel of a topic',
      client: MAGISTRALA_14,
      test: 'bound-tokens.json: subscribes to the topic of older messages',
    },
  ],
  'api/identity/users/registration.ts': [
    {
      older: 'name',
      newer: 'first_name and last_name',
      client: MAGISTRALA_14,
      test: 'test/api/users.test.ts: the legacy shape keeps the name, and its identity is the email or the username',
    },
    {
      older: 'identity',
      newer: 'email, or username without an @',
      client: MAGISTRALA_14,
      test: 'test/api/users.test.ts: the legacy shape keeps the name, and its identity is the email or the username',
    },
  ],
  'api/identity/roles/relations.ts': [
    {
      older: 'administrator',
      newer: 'the role admin',
      client: SUPERMQ,
      test: 'test/api/invitations.test.ts: %s makes a member of the role %s',
    },
    ...['editor', 'contributor', 'member', 'viewer', 'guest'].map((relation) => ({
      older: relation,
      newer: 'the role of that name',
      client: SUPERMQ,
      test: 'test/api/invitations.test.ts: %s makes a member of the role %s',
    })),
  ],
  'api/identity/events/streams.ts': [
    {
      older: 'change_status',
      newer: 'enable or disable',
      client: MAINFLUX,
      test: 'test/api/events-redis.test.ts: a change is in the stream of its service and in the stream of its operation, flat',
    },
  ],
  'api/provisioning/bootstrap/device-routes.ts': [
    {
      older: 'things',
      newer: 'clients, before `/bootstrap`',
      client: AGENTS,
      test: 'device-keys.json: fetches its bootstrap configuration',
    },
  ],
  'manager/tasks/legacy-fields.ts': [
    {
      older: 'file',
      newer: 'PUT /tasks/{task_id}/upload',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: the module in the body',
    },
    {
      older: 'is_recurring',
      newer: 'schedule',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: a task that comes again',
    },
  ],
  'manager/workflows/legacy-routes.ts': [
    {
      older: 'execution_mode',
      newer: 'depends_on',
      client: PROPELLER,
      test: 'proplets-and-jobs.json: creates a job',
    },
  ],
}
