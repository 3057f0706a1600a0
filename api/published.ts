/** The settings that show whether other machines can reach a platform that listens on loopback. */
import { HTTP_SETTINGS } from '#http/settings.ts'
import { IDENTITY_SETTINGS } from './identity/config.ts'

export const PUBLISHED_SETTINGS = {
  trustProxy: HTTP_SETTINGS.trustProxy,
  publicUrl: IDENTITY_SETTINGS.publicUrl,
} as const
