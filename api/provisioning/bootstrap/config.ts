/** Settings of bootstrap. */
import { secret } from '#core/config/index.ts'

export const BOOTSTRAP_SETTINGS = {
  bootstrapEncryptKey: secret(
    'SKEIN_BOOTSTRAP_ENCRYPT_KEY',
    'Key of the secure bootstrap (AES-256-CFB): 32 bytes as text, or 64 hexadecimal digits; none: that path is off',
  ),
} as const
