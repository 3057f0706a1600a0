/** Settings of users and tokens (contract section 15). */
import { durationMs, flag, secret, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const IDENTITY_SETTINGS = {
  adminEmail: text('SKEIN_ADMIN_EMAIL', 'admin@example.com', 'Email of the first platform administrator'),
  adminUsername: text('SKEIN_ADMIN_USERNAME', 'admin', 'Username of the first platform administrator'),
  adminSecret: secret(
    'SKEIN_ADMIN_SECRET',
    'Password of the first platform administrator; none: a random one, printed once and kept in the data folder',
  ),
  accessTokenTtlMs: durationMs('SKEIN_ACCESS_TOKEN_TTL', '1h', 'Lifetime of an access token'),
  refreshTokenTtlMs: durationMs(
    'SKEIN_REFRESH_TOKEN_TTL',
    '24h',
    'Lifetime of a refresh token, and of a login that is not refreshed',
  ),
  allowSelfRegister: flag(
    'SKEIN_ALLOW_SELF_REGISTER',
    true,
    'Whether anybody may register; false: the platform administrator alone creates users',
  ),
  uniqueNames: flag(
    'SKEIN_USERS_UNIQUE_NAMES',
    true,
    'Whether first and last names must each be unique, as emails and usernames always are',
  ),
  passwordPattern: text('SKEIN_PASSWORD_PATTERN', '^.{8,}$', 'Regular expression that a password must match'),
} as const

export type IdentityConfig = ConfigOf<typeof IDENTITY_SETTINGS>
