/** Settings of bootstrap. */
import { flag, secret } from '#core/config/index.ts'

export const BOOTSTRAP_SETTINGS = {
  bootstrapEncryptKey: secret(
    'SKEIN_BOOTSTRAP_ENCRYPT_KEY',
    'Key of the secure bootstrap (AES-256-CFB): 32 bytes as text, or 64 hexadecimal digits; unset: secure bootstrap is disabled',
  ),
  bootstrapWeakKeys: flag(
    'SKEIN_BOOTSTRAP_WEAK_KEYS',
    false,
    'Allow new external keys of bootstrap configurations with fewer than 16 characters',
  ),
} as const
