/** Texts of the OpenAPI document that belong to no single route: the tags and an example of each main resource. */
import type { DocumentTexts, TwinRule } from '#http/index.ts'

const USER_ID = '8dc4a2f0-6c3c-4d1d-9a6b-0e2a7a2d9d3f'
const DOMAIN_ID = '0c2ce4ef-6ac4-4a8e-95ad-5bb5b1fbb3ae'
const CLIENT_ID = 'b7bfc4b6-c18d-47c5-b343-98235c5acc19'
const CHANNEL_ID = '5e3a0a0c-5a0b-4a49-9a3f-2f3a4d8a1f77'
const GROUP_ID = '2b1f6a53-7d7d-4a52-8a7c-4b8e8f0f6f11'
const CREATED_AT = '2026-11-21T04:19:36.123456Z'
const NEVER = '0001-01-01T00:00:00Z'

/** The rules apply in this order: a path takes each rule that matches, and the newest of its forms that has its shape describes it. */
const TWINS: readonly TwinRule[] = [
  { older: /^\/things\//, newer: '/clients/' },
  { older: /^\/http\/(m|channels)\//, newer: '/$1/' },
  { older: /^((?:\/\{domain_id\})?\/(?:clients|channels|groups|domains)\/.*\b)role(\/|$)/, newer: '$1roles$2' },
  {
    older:
      /^((?:\/\{domain_id\})?)\/(?:clients|channels|groups|domains)\/\{(?:client|channel|group|domain)_id\}\/roles/,
    newer: '$1/{entity_type}/{entity_id}/roles',
    nouns: {
      parameter: 'entity_type',
      at: /\/\{entity_type\}\/\{entity_id\}\/roles/,
      said: { one: /\b(?:a|the) (?:client|channel|group|domain)\b/, any: 'an entity' },
    },
  },
  { older: /^\/(?!\{domain_id\})/, newer: '/{domain_id}/' },
]

export const API_DOCUMENT: DocumentTexts = {
  twins: TWINS,
  introduction: [
    'Log in with `POST /users/tokens/issue` and send `Authorization: Bearer <access_token>`; devices send `Authorization: Client <secret>`.',
    'A domain is a tenant. Most paths begin with the id of a domain. An id on which the caller has no `read` returns 404, like an unknown id. A domain that the caller has no access to returns 403.',
    'Bodies are JSON; unknown fields are ignored. Listings accept `offset` and `limit` (default 10, at most 100) and return `total`. A timestamp of `0001-01-01T00:00:00Z` means never. Every response has the header `X-Request-Id`. Errors are `{"error": "<kind>", "message": "<sentence>"}`, with `details` for invalid input.',
    'An operation that several paths serve is described once and names them in `x-paths`. A path without the domain searches the domains that the caller has access to, and answers 409 when an id exists in several of them; a creation uses the domain of the token, or the only domain of the caller. `role` is an older spelling of `roles`.',
  ].join('\n\n'),
  tags: {
    assignments:
      'Users on one entity by relation (administrator, editor, viewer …): roles in the format of older clients',
    bootstrap: 'Configuration that a device gets for its external id and key',
    certificates: 'Certificates of clients, their certificate authority and the revocation list',
    channels: 'Named streams of messages; connected clients publish and subscribe',
    clients: 'Devices and applications, each with its own secret',
    connections: 'Permissions of clients to publish to and subscribe on channels',
    consumers: 'Positions in the messages of channels, with acknowledgements, for programs that must not miss any',
    dashboards: 'Dashboards and preferences that a program with a screen keeps for its user',
    domains: 'Tenants; every entity except users belongs to one domain',
    events: 'Changes as they happen, as server-sent events',
    groups:
      'A hierarchy of groups; a client or channel can have a group as parent, and roles on a group apply to everything below it',
    health: 'Health and metrics of the service',
    invitations: 'Invitations of users to a domain',
    journal: 'Audit log: user, time, origin, and values before and after each change',
    keys: 'API keys of users, and the public keys that verify tokens',
    messages: 'Publishing and reading measurements (SenML, RFC 8428) and other payloads',
    'personal access tokens': 'Long-lived tokens for programs, limited by scopes',
    provision: 'Creation of all entities of a device in one request',
    roles: 'Named sets of actions on a domain, group, client or channel, and their members',
    states: 'What clients should be, what they report, and the difference',
    subscriptions: 'Notifications about messages by mail or webhook',
    tasks: 'WebAssembly modules with inputs, their runs and results',
    tokens: 'Log in, refresh and log out',
    users: 'Accounts',
    workers: 'Nodes that run tasks',
    workflows: 'Tasks that depend on each other, started together',
    modules: 'WebAssembly modules of registries and uploads: storage, prefetching, pushing and signatures',
  },
  examples: {
    IssueToken: { identity: 'jane@example.com', secret: 'correct horse battery' },
    TokenPair: {
      access_token: 'eyJhbGciOiJFZERTQSJ9.e30.c2ln',
      refresh_token: 'eyJhbGciOiJFZERTQSJ9.e30.c2ln',
      access_type: 'Bearer',
    },
    UserCreate: {
      first_name: 'Jane',
      last_name: 'Doe',
      email: 'jane@example.com',
      credentials: { username: 'jane', secret: 'correct horse battery' },
      tags: ['ops'],
      metadata: { shift: 'night' },
    },
    DomainCreate: { name: 'North plant', alias: 'north-plant', metadata: { country: 'NO' } },
    ClientCreate: { name: 'pump 7', tags: ['pump'], metadata: { hall: 2 }, credentials: { identity: 'pump-7' } },
    Client: {
      id: CLIENT_ID,
      name: 'pump 7',
      domain_id: DOMAIN_ID,
      tags: ['pump'],
      credentials: { identity: 'pump-7', secret: '' },
      metadata: { hall: 2 },
      status: 'enabled',
      owner: USER_ID,
      created_at: CREATED_AT,
      updated_at: NEVER,
    },
    ChannelCreate: { name: 'vibration', description: 'All pumps of hall 2', metadata: { unit: 'mm/s' } },
    Channel: {
      id: CHANNEL_ID,
      name: 'vibration',
      description: 'All pumps of hall 2',
      domain_id: DOMAIN_ID,
      tags: [],
      metadata: { unit: 'mm/s' },
      status: 'enabled',
      owner_id: USER_ID,
      created_at: CREATED_AT,
      updated_at: NEVER,
    },
    GroupCreate: { name: 'hall 2', description: 'Everything in hall 2', parent_id: GROUP_ID },
    Group: {
      id: GROUP_ID,
      domain_id: DOMAIN_ID,
      name: 'hall 2',
      description: 'Everything in hall 2',
      tags: [],
      metadata: {},
      status: 'enabled',
      level: 1,
      path: GROUP_ID,
      created_by: USER_ID,
      created_at: CREATED_AT,
      updated_at: NEVER,
    },
    User: {
      id: USER_ID,
      first_name: 'Jane',
      last_name: 'Doe',
      name: 'Jane Doe',
      email: 'jane@example.com',
      credentials: { username: 'jane', identity: 'jane@example.com' },
      tags: ['ops'],
      metadata: { shift: 'night' },
      role: 'user',
      status: 'enabled',
      created_at: CREATED_AT,
      updated_at: NEVER,
    },
    Role: {
      id: `client_${CLIENT_ID}`,
      role_id: `client_${CLIENT_ID}`,
      name: 'operators',
      role_name: 'operators',
      entity_id: CLIENT_ID,
      actions: ['read', 'update'],
      optional_actions: ['read', 'update'],
      members: [USER_ID],
      optional_members: [USER_ID],
      created_by: USER_ID,
      created_at: CREATED_AT,
      updated_at: NEVER,
    },
    RoleCreate: { role_name: 'operators', optional_actions: ['read', 'update'], optional_members: [USER_ID] },
    Connecting: { client_ids: [CLIENT_ID], channel_ids: [CHANNEL_ID], types: ['publish', 'subscribe'] },
    Domain: {
      id: DOMAIN_ID,
      name: 'North plant',
      alias: 'north-plant',
      route: 'north-plant',
      tags: [],
      metadata: { country: 'NO' },
      status: 'enabled',
      created_by: USER_ID,
      created_at: CREATED_AT,
      updated_at: NEVER,
    },
    Error: {
      error: 'malformed',
      message: 'limit must be between 1 and 100',
      details: [{ path: 'limit', message: 'must be between 1 and 100' }],
    },
  },
}
