/** Headers that restrict how browsers use responses. */

/** Every response has these headers. They disable content sniffing. */
export const RESPONSE_HEADERS = { 'X-Content-Type-Options': 'nosniff' } as const

/**
 * Every page has these headers. It loads only its own resources, cannot be framed and sends no referrer. Swagger UI sets inline styles,
 * which are allowed.
 */
export const PAGE_HEADERS = {
  ...RESPONSE_HEADERS,
  'Content-Security-Policy': [
    "default-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
  ].join('; '),
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
} as const
