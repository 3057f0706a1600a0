/** Settings of users and tokens (contract section 15). */
import { durationMs, flag, integer, optionalInteger, secret, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { MAIL_SETTINGS } from './mail/config.ts'

export const IDENTITY_SETTINGS = {
  adminEmail: text('SKEIN_ADMIN_EMAIL', 'admin@example.com', 'Email of the first platform administrator'),
  adminUsername: text('SKEIN_ADMIN_USERNAME', 'admin', 'Username of the first platform administrator'),
  adminSecret: secret(
    'SKEIN_ADMIN_SECRET',
    'Password of the first platform administrator; none: a random one, in admin-secret of the data folder',
  ),
  accessTokenTtlMs: durationMs('SKEIN_ACCESS_TOKEN_TTL', '1h', 'Lifetime of an access token'),
  refreshTokenTtlMs: durationMs(
    'SKEIN_REFRESH_TOKEN_TTL',
    '24h',
    'Lifetime of a refresh token, and of a login that is not refreshed',
  ),
  signingKeyLifetimeMs: durationMs(
    'SKEIN_SIGNING_KEY_LIFETIME',
    '720h',
    'Age at which the key that signs tokens is replaced, which logs nobody out; 0: only when an administrator asks',
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
  journalRetentionDays: optionalInteger(
    'SKEIN_JOURNAL_RETENTION_DAYS',
    { min: 1, max: 36_500 },
    'Days that records of the journal are kept; none: for ever',
  ),
  eventStreamLength: integer(
    'SKEIN_EVENT_STREAM_LENGTH',
    100_000,
    { min: 0, max: 100_000_000 },
    'Events that each Redis stream keeps, about; 0: no events are sent to Redis',
  ),
  requireVerifiedEmail: flag(
    'SKEIN_REQUIRE_VERIFIED_EMAIL',
    false,
    'Whether a user must follow the link in a mail before he may do more than see his profile and correct his address',
  ),
  passwordPattern: text('SKEIN_PASSWORD_PATTERN', '^.{8,}$', 'Regular expression that a password must match'),
  ...MAIL_SETTINGS,
} as const

export type IdentityConfig = ConfigOf<typeof IDENTITY_SETTINGS>
