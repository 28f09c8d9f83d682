/* Elementary functions of single numbers in double, from SLEEF's bit-reproducible variants (1.0 ULP): the same bits on
 * every processor and with every libm. Debian's <sleef.h> declares them only to compilers that were given -mfma, which
 * only kernel files are; the library has them always. Source: SLEEF 3.5, naming "finz_..._u10purecfma". */
#ifndef WH_BASE_ELEMENTARY_H
#define WH_BASE_ELEMENTARY_H

double Sleef_finz_logd1_u10purecfma(double);
double Sleef_finz_sind1_u10purecfma(double);
double Sleef_finz_cosd1_u10purecfma(double);
double Sleef_finz_powd1_u10purecfma(double, double);

static inline double wh_log(double x) { return Sleef_finz_logd1_u10purecfma(x); }
static inline double wh_sin(double x) { return Sleef_finz_sind1_u10purecfma(x); }
static inline double wh_cos(double x) { return Sleef_finz_cosd1_u10purecfma(x); }
static inline double wh_pow(double x, double y) { return Sleef_finz_powd1_u10purecfma(x, y); }

#endif
