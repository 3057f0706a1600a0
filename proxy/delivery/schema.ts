/** Wire shapes of the proxy's API for managers. */
import { Type } from 'typebox'
import type { Static } from 'typebox'

const MAX_REFERENCE_CHARS = 1024
const MAX_KEYS = 16
const MAX_KEY_CHARS = 8_192
const MAX_DESCRIBED = 100

const Digest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$', description: 'Digest of the bytes of the module' })
const Size = Type.Integer({ description: 'Bytes' })
const Reference = Type.String({
  minLength: 1,
  maxLength: MAX_REFERENCE_CHARS,
  description: '[registry[:port]/]repository[:tag][@digest]',
})
const Pinned = Type.String({
  minLength: 1,
  maxLength: MAX_REFERENCE_CHARS,
  description: 'Reference with registry, repository and manifest digest',
})
const DomainId = Type.String({
  maxLength: 64,
  description: 'Domain of the request, a UUID; absent: the platform',
})

export const ResolveBody = Type.Object({
  reference: Reference,
  domain_id: Type.Optional(DomainId),
  signatures: Type.Enum(['off', 'warn', 'require']),
  keys: Type.Array(Type.String({ maxLength: MAX_KEY_CHARS }), { maxItems: MAX_KEYS, description: 'Public keys, PEM' }),
})

export const ResolvedModule = Type.Object({
  digest: Digest,
  size: Size,
  reference: Pinned,
  stale: Type.Boolean({ description: 'True if the registry was unavailable and the last known digest was used' }),
  signed: Type.Boolean({ description: 'Whether one of the keys signed it' }),
  signature_problem: Type.String({ description: 'With warn: the reason why it is not signed; else empty' }),
})
export type ResolvedModule = Static<typeof ResolvedModule>

export const PullBody = Type.Object({ digest: Digest, reference: Pinned })

const Extern = Type.Object({
  name: Type.String(),
  kind: Type.String(),
  params: Type.Array(Type.String()),
  results: Type.Array(Type.String()),
})

export const StatusBody = Type.Object({
  digests: Type.Array(Digest, { maxItems: MAX_DESCRIBED }),
  exports: Type.Boolean({ description: 'Whether to include kind, exports and imports' }),
})

export const ModuleStatus = Type.Object({
  modules: Type.Array(
    Type.Object({
      digest: Digest,
      size: Size,
      last_used_ms: Type.Integer({ description: 'Milliseconds since 1970' }),
      kind: Type.Optional(Type.Enum(['core', 'component'])),
      exports: Type.Optional(Type.Array(Extern, { description: 'Absent: unreadable, or not requested' })),
      imports: Type.Optional(Type.Array(Type.Object({ module: Type.String(), ...Extern.properties }))),
    }),
    { description: 'The cached modules' },
  ),
})

export const ModuleParams = Type.Object({ digest: Digest })
export const PushQuery = Type.Object({
  reference: Reference,
  digest: Type.Optional(Digest),
  domain_id: Type.Optional(DomainId),
})
export const PushedModule = Type.Object({
  reference: Pinned,
  login: Type.Enum(['own', 'configured', 'none'], {
    description: 'Credentials that the registry required: own, configured or none',
  }),
})
