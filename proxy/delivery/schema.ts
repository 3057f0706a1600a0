/** Wire shapes of what managers ask of the proxy. */
import { Type } from 'typebox'
import type { Static } from 'typebox'

const MAX_REFERENCE_CHARS = 1024
const MAX_KEYS = 16
const MAX_KEY_CHARS = 8_192
const MAX_DESCRIBED = 100

const Digest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$', description: 'Of the bytes of the module' })
const Size = Type.Integer({ description: 'Bytes' })
const Reference = Type.String({
  minLength: 1,
  maxLength: MAX_REFERENCE_CHARS,
  description: '[registry[:port]/]repository[:tag][@digest]',
})
const Pinned = Type.String({
  minLength: 1,
  maxLength: MAX_REFERENCE_CHARS,
  description: 'With registry, repository and manifest digest',
})
const DomainId = Type.String({
  maxLength: 64,
  description: 'On whose behalf it is asked, a UUID; absent: the platform',
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
  stale: Type.Boolean({ description: 'The registry was not reachable and an earlier answer was used' }),
  signed: Type.Boolean({ description: 'One of the keys signed it' }),
  signature_problem: Type.String({ description: 'With warn: why it does not count as signed; else empty' }),
})
export type ResolvedModule = Static<typeof ResolvedModule>

export const PullBody = Type.Object({ digest: Digest, reference: Pinned })

export const StatusBody = Type.Object({
  digests: Type.Array(Digest, { maxItems: MAX_DESCRIBED }),
  exports: Type.Boolean({ description: 'Whether to say what they export' }),
})

export const ModuleStatus = Type.Object({
  modules: Type.Array(
    Type.Object({
      digest: Digest,
      size: Size,
      last_used_ms: Type.Integer({ description: 'Milliseconds since 1970' }),
      exports: Type.Optional(
        Type.Array(
          Type.Object({
            name: Type.String(),
            kind: Type.String(),
            params: Type.Array(Type.String()),
            results: Type.Array(Type.String()),
          }),
          { description: 'Absent: it cannot be read, or was not asked for' },
        ),
      ),
    }),
    { description: 'Those that are in the cache' },
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
  login: Type.Enum(['own', 'configured', 'none'], { description: 'Whose login the registry was shown, if it asked' }),
})
