// The OpenAPI document, shown by Swagger UI: https://github.com/swagger-api/swagger-ui (Apache-2.0).

document.documentElement.classList.toggle("dark-mode", document.documentElement.dataset.theme === "dark");

window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  persistAuthorization: false,
  validatorUrl: null,
});
