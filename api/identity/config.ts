/** Settings of users and tokens (contract section 15). */
import { durationMs, flag, integer, optionalInteger, secret, text } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'
import { MAIL_SETTINGS } from './mail/config.ts'
import { QUOTA_SETTINGS } from './quotas/config.ts'

export const IDENTITY_SETTINGS = {
  adminEmail: text('SKEIN_ADMIN_EMAIL', 'admin@example.com', 'Email of the first platform administrator'),
  adminUsername: text('SKEIN_ADMIN_USERNAME', 'admin', 'Username of the first platform administrator'),
  adminSecret: secret(
    'SKEIN_ADMIN_SECRET',
    'Password of the first platform administrator; defaults to a random password, stored in admin-secret of the data folder',
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
    'Age at which the key that signs tokens is replaced; existing tokens remain valid; 0: only on request of an administrator',
  ),
  allowSelfRegister: flag(
    'SKEIN_ALLOW_SELF_REGISTER',
    true,
    'Whether users can register themselves; false: only platform administrators create users',
  ),
  uniqueNames: flag(
    'SKEIN_USERS_UNIQUE_NAMES',
    true,
    'Whether first names and last names must each be unique; emails and usernames always are',
  ),
  journalRetentionDays: optionalInteger(
    'SKEIN_JOURNAL_RETENTION_DAYS',
    { min: 1, max: 36_500 },
    'Days that records of the journal are kept; unset: forever',
  ),
  eventStreamLength: integer(
    'SKEIN_EVENT_STREAM_LENGTH',
    100_000,
    { min: 0, max: 100_000_000 },
    'Approximate number of events that each Redis stream keeps; 0: no events are sent to Redis',
  ),
  requireVerifiedEmail: flag(
    'SKEIN_REQUIRE_VERIFIED_EMAIL',
    false,
    'Whether a user must open the link in a mail before they can do more than view their profile and correct their address',
  ),
  passwordPattern: text('SKEIN_PASSWORD_PATTERN', '^.{8,}$', 'Regular expression that a password must match'),
  ...MAIL_SETTINGS,
  ...QUOTA_SETTINGS,
} as const

export type IdentityConfig = ConfigOf<typeof IDENTITY_SETTINGS>
