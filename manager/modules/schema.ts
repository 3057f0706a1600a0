/** Wire shapes of modules, pre-pulls, pushes and policies (task-manager.md section 6). */
import { Type } from 'typebox'
import type { Static, TSchema } from 'typebox'
import { SECRET, documented, recordOf } from '#http/index.ts'
import { formatTime } from '#core/time.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import type { ModuleUse } from './uses.ts'

const PAGE_LIMIT = 100
const MAX_REFERENCE_CHARS = 1024
const MAX_WORKERS = 1_000
const MAX_KEYS = 16
const MAX_KEY_CHARS = 8_192

const Digest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$', description: 'sha256: and 64 hexadecimal digits' })
const DomainId = Type.String({ maxLength: 64, description: 'UUID', ...documented({ format: 'uuid' }) })
const Reference = Type.String({
  minLength: 1,
  maxLength: MAX_REFERENCE_CHARS,
  description: '[registry[:port]/]repository[:tag][@digest]',
})
const Timestamp = Type.String({ description: 'RFC 3339; 0001-01-01T00:00:00Z: never' })

export const Bytes = Type.String({ format: 'binary', description: 'The module' })

export const ModuleParams = Type.Object({ digest: Digest })

const Extern = Type.Object({
  name: Type.String(),
  kind: Type.String(),
  params: Type.Array(Type.String(), {
    description: 'Types, such as `i32` or `list<u8>`; empty unless it is a function',
  }),
  results: Type.Array(Type.String()),
})
const Import = Type.Object({
  module: Type.String({ description: 'Of a component: the interface' }),
  ...Extern.properties,
})
const Kind = Type.Enum(['core', 'component'])
const unknownOr = <T extends TSchema>(type: T) =>
  Type.Union([type, Type.Null()], {
    description: 'null: unknown, because the module is not cached or cannot be read',
  })

export const RegistryModule = Type.Object(
  {
    digest: Digest,
    size: Type.Integer({ description: 'Bytes' }),
    source: Type.Enum(['registry', 'upload']),
    domain_id: Type.Optional(Type.String({ description: 'Absent for tasks without a domain' })),
    reference: Type.Optional(Type.String({ description: 'Registry, repository and manifest digest' })),
    image_url: Type.Optional(Type.String({ description: 'The reference as last requested' })),
    signed: Type.Optional(Type.Boolean({ description: "Whether a key of the domain's policy signed it" })),
    cached: Type.Object({
      proxy: Type.Union([Type.Boolean(), Type.Null()], {
        description:
          'Whether the module proxy has it in its cache; null: the proxy does not answer, or the module was uploaded',
      }),
      workers: Type.Array(Type.Object({ id: Type.String(), name: Type.String() }), {
        description: 'Workers of this manager that have it in their cache',
      }),
    }),
    tasks: Type.Optional(Type.Integer({ description: 'Tasks with this upload' })),
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
export const ModuleList = Type.Object({
  kind: unknownOr(Kind),
  exports: unknownOr(Type.Array(Extern)),
  imports: unknownOr(Type.Array(Import)),
  modules: Type.Array(RegistryModule),
})

export const InspectQuery = Type.Object({ domain_id: Type.Optional(DomainId) })

export const InspectedModule = Type.Object(
  {
    digest: Digest,
    size: Type.Integer({ description: 'Bytes' }),
    kind: Kind,
    runtime: Type.Optional(
      Type.String({ description: 'core, wasi-preview1 or component; absent if no worker runs it' }),
    ),
    exports: Type.Array(Extern),
    imports: Type.Array(Import),
    refusal: Type.Optional(Type.String({ description: 'Why a task refuses this module; absent: it is accepted' })),
  },
  { $id: 'InspectedModule' },
)

export const PrePull = Type.Object(
  {
    reference: Reference,
    domain_id: Type.Optional(Type.Union([DomainId, Type.Null()])),
    workers: Type.Optional(
      Type.Union([Type.Literal('all'), Type.Array(Type.String({ maxLength: 64 }), { maxItems: MAX_WORKERS })], {
        description: 'Workers that fetch it too: their ids, or `all` that can run it; absent: only the proxy',
      }),
    ),
    labels: Type.Optional(
      recordOf(Type.String({ maxLength: 256 }), {
        propertyNames: Type.String({ maxLength: 256 }),
        description: 'Selects the workers with these labels',
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
  workers: Type.Integer({ description: 'Number of workers that will fetch it' }),
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
    ticket: Type.String({ ...SECRET, description: 'A bearer token for the module proxy' }),
    expires_at: Type.String({ description: 'RFC 3339' }),
    registry: Type.String({ description: 'host:port of the module proxy' }),
    artifact: Type.String({
      description:
        'Name of the module at the proxy, with a tag or the digest of its manifest: docker://<registry>/<artifact>',
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
    description: 'Reference with the digest of the manifest: an immutable image_url',
  }),
  login: Type.Enum(['own', 'configured', 'none'], {
    description:
      'Credentials that the registry required: own: those of `Registry-Authorization`; configured: those of the proxy; none',
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
