/** Version that clients see: the release of the known engine whose API 1.49 this daemon speaks. Some clients parse it. */
export const PRODUCT_VERSION = '28.1.1';
