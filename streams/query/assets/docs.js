// The OpenAPI document, shown by Swagger UI: https://github.com/swagger-api/swagger-ui (Apache-2.0).

const chosen = document.documentElement.dataset.theme;
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.classList.toggle("dark-mode", dark);

window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  persistAuthorization: false,
  validatorUrl: null,
});
