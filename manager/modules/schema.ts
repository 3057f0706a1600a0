/** Wire shapes of modules, pre-pulls, pushes and policies (task-manager.md section 6). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf, shown } from '#core/http/index.ts'
import { formatTime } from '#core/time.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import type { ModuleUse } from './uses.ts'

const PAGE_LIMIT = 100
const MAX_REFERENCE_CHARS = 1024
const MAX_WORKERS = 1_000
const MAX_KEYS = 16
const MAX_KEY_CHARS = 8_192

const Digest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$', description: 'sha256: and 64 hexadecimal digits' })
const DomainId = Type.String({ maxLength: 64, description: 'UUID', ...shown({ format: 'uuid' }) })
const Reference = Type.String({
  minLength: 1,
  maxLength: MAX_REFERENCE_CHARS,
  description: '[registry[:port]/]repository[:tag][@digest]',
})
const Timestamp = Type.String({ description: 'RFC 3339; 0001-01-01T00:00:00Z: never' })

export const Bytes = Type.String({ format: 'binary', description: 'The module' })

export const ModuleParams = Type.Object({ digest: Digest })

const Exports = Type.Union(
  [
    Type.Array(
      Type.Object({
        name: Type.String(),
        kind: Type.String(),
        params: Type.Array(Type.String()),
        results: Type.Array(Type.String()),
      }),
    ),
    Type.Null(),
  ],
  { description: 'null: not known, because the module is in no cache or cannot be read' },
)
export type Exports = Static<typeof Exports>

export const RegistryModule = Type.Object(
  {
    digest: Digest,
    size: Type.Integer({ description: 'Bytes' }),
    source: Type.Enum(['registry', 'upload']),
    domain_id: Type.Optional(Type.String({ description: 'Absent: of tasks without a domain' })),
    reference: Type.Optional(Type.String({ description: 'With registry, repository and manifest digest' })),
    image_url: Type.Optional(Type.String({ description: 'As it was asked for last' })),
    signed: Type.Optional(Type.Boolean({ description: "A key of the domain's policy signed it" })),
    cached: Type.Object({
      proxy: Type.Union([Type.Boolean(), Type.Null()], {
        description: 'In the cache of the module proxy; null: the proxy does not answer, or the module was uploaded',
      }),
      workers: Type.Array(Type.Object({ id: Type.String(), name: Type.String() }), {
        description: 'Workers of this manager that have it',
      }),
    }),
    tasks: Type.Optional(Type.Integer({ description: 'Tasks that have the upload' })),
    created_at: Timestamp,
    last_used_at: Timestamp,
  },
  { $id: 'RegistryModule' },
)
export type RegistryModule = Static<typeof RegistryModule>

export const ModuleQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  domain_id: Type.Optional(DomainId),
  source: Type.Optional(Type.Enum(['registry', 'upload'])),
})
export type ModuleQuery = Static<typeof ModuleQuery>

export const ModulePage = Type.Object({ ...pageFields, modules: Type.Array(RegistryModule) })
export const ModuleList = Type.Object({ exports: Exports, modules: Type.Array(RegistryModule) })

export const PrePull = Type.Object(
  {
    reference: Reference,
    domain_id: Type.Optional(Type.Union([DomainId, Type.Null()])),
    workers: Type.Optional(
      Type.Union([Type.Literal('all'), Type.Array(Type.String({ maxLength: 64 }), { maxItems: MAX_WORKERS })], {
        description: 'Workers that are to have it as well: their ids, or all that may run it; absent: the proxy alone',
      }),
    ),
    labels: Type.Optional(
      recordOf(Type.String({ maxLength: 256 }), {
        propertyNames: Type.String({ maxLength: 256 }),
        description: 'Of those workers, the ones with these labels',
      }),
    ),
  },
  { $id: 'PrePull' },
)
export type PrePull = Static<typeof PrePull>

export const PrePulled = Type.Object({
  digest: Digest,
  size: Type.Integer({ description: 'Bytes' }),
  reference: Type.String(),
  signed: Type.Boolean(),
  notes: Type.Array(Type.String()),
  workers: Type.Integer({ description: 'Workers that will be told to fetch it' }),
})

export const TicketBody = Type.Object(
  {
    digest: Digest,
    domain_id: Type.Optional(Type.Union([DomainId, Type.Null()])),
    reference: Type.Optional(Reference),
  },
  { $id: 'ModuleTicketRequest' },
)

export const Ticket = Type.Object(
  {
    ticket: Type.String({ description: 'A bearer token for the module proxy' }),
    expires_at: Type.String({ description: 'RFC 3339' }),
    registry: Type.String({ description: 'host:port of the module proxy' }),
    artifact: Type.String({
      description:
        'What the module is called there, with a tag or the digest of its manifest: docker://<registry>/<artifact>',
    }),
    digest: Digest,
    size: Type.Integer({ description: 'Bytes' }),
  },
  { $id: 'ModuleTicket' },
)

export const PushQuery = Type.Object({ reference: Reference, domain_id: Type.Optional(DomainId) })

export const Pushed = Type.Object({
  digest: Digest,
  size: Type.Integer({ description: 'Bytes' }),
  reference: Type.String({
    description: 'With the digest of the manifest; an image_url that never changes its meaning',
  }),
  login: Type.Enum(['own', 'configured', 'none'], {
    description:
      'Whose login the registry was shown where it asked for one: that of `Registry-Authorization`, the configured one, or none',
  }),
})

export const PolicyQuery = Type.Object({ domain_id: Type.Optional(DomainId) })

export const ModulePolicyBody = Type.Object(
  {
    signatures: Type.Enum(['off', 'warn', 'require']),
    keys: Type.Optional(
      Type.Array(Type.String({ maxLength: MAX_KEY_CHARS }), { maxItems: MAX_KEYS, description: 'Public keys, PEM' }),
    ),
  },
  { $id: 'ModulePolicy' },
)

export type ShownModule = ModuleUse & {
  isProxied: boolean | null
  workers: { id: string; name: string }[]
}

export function presentModule(module: ShownModule): RegistryModule {
  return {
    digest: module.digest,
    size: module.sizeBytes,
    source: module.source,
    ...(module.domainId === null ? {} : { domain_id: module.domainId }),
    ...(module.reference === null ? {} : { reference: module.reference }),
    ...(module.imageUrl === null ? {} : { image_url: module.imageUrl }),
    ...(module.signed === null ? {} : { signed: module.signed }),
    cached: { proxy: module.isProxied, workers: module.workers },
    ...(module.source === 'upload' ? { tasks: module.tasks } : {}),
    created_at: formatTime(module.createdAt),
    last_used_at: formatTime(module.lastUsedAt),
  }
}
